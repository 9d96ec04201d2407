# 1 "original.c"
int n;
void f(void)
{
# 7 "generated.y"
    n = 1;
}
