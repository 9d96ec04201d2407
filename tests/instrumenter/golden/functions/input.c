int printf(const char *, ...);
static int area(int a, int b)
{
    if (a < 0)
        return -1;
    return a * b;
}
void show(void) { printf("%d\n", area(2, area(3, 4))); }
int main(void)
{
    show();
    return sizeof(area(1, 1)) == 4 ? 0 : 1;
}
