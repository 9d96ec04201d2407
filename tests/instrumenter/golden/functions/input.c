int printf(const char *, ...);
static int area(int a, int b)
{
    if (a < 0)
        return -1;
    return a * b;
}
void show(void) { printf("%d\n", area(2, area(3, 4))); }
static int sum(int n, int all)
{
    if (!area(n, 1))
        return area(all, 1);
    return n > 9 ? area(n, all) : sum(n - 1, all + n);
}
static int end(int n) { __attribute__((musttail)) return end(n - 1); }
int main(void)
{
    show();
    return sizeof(area(1, 1)) == 4 ? 0 : 1;
}
