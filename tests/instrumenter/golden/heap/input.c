typedef unsigned long size_t;
void *malloc(size_t), *calloc(size_t, size_t);
void free(void *);
int main(void)
{
    char *a = malloc(10), *b = calloc(2, 4);
    free(a), free(b);
    free((malloc)(1));
    return 0;
}
