int a, b;
static int touched;
static void touch(void) { if (touched++ == 1) a = 5; }
