static int sent;
static void send(const char *data, int length)
{
    sent += data ? length : 0;
}
int main(void)
{
    for (int length = 0; length < 5; length++)
        send("abcdef", length);
    return sent - 10;
}
