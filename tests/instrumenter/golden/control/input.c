int main(void)
{
    int n = 0, *p = 0;
    for (int i = 0; i < 3; i++) {
        n += i > 1 ? 2 : 1;
    }
    while (n > 3) n--;
    do
        if (n) n++; else if (n == 7) { n = 0; } else;
    while (n < 9);
    for (;;) if (n ?: 1) break;
    return p ? *p : 0;
}
