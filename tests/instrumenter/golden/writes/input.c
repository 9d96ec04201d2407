struct point { int x, y; } points[2];
static int total = 3;
int main(void)
{
    int i = 0;
    for (i = 1; i < 2; ++i)
        total += points[i].x = i;
    (total)--, points[0].y = 4;
    total = (points->x++, total);
    return 0;
}
