/* Indexes the words of a made-up text in a hash table, and prints the most frequent ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096

struct entry {
    struct entry *next;
    int count;
    char word[20];
};

static struct entry *table[BUCKETS];
static unsigned long seed = 1;

static unsigned draw(unsigned below) {
    seed = seed * 6364136223846793005UL + 1442695040888963407UL;
    return (unsigned)(seed >> 33) % below;
}

static unsigned mix(unsigned hash, char letter) {
    return (hash ^ (unsigned char)letter) * 16777619u;
}

static unsigned hash_of(const char *word) {
    unsigned hash = 2166136261u;
    for (; *word; word++)
        hash = mix(hash, *word);
    return hash % BUCKETS;
}

static struct entry *lookup(const char *word) {
    struct entry *one;
    for (one = table[hash_of(word)]; one; one = one->next)
        if (strcmp(one->word, word) == 0)
            return one;
    return NULL;
}

static void add(const char *word) {
    struct entry *one = lookup(word);
    if (!one) {
        unsigned bucket = hash_of(word);
        one = calloc(1, sizeof *one);
        strcpy(one->word, word);
        one->next = table[bucket];
        table[bucket] = one;
    }
    one->count++;
}

static void make_word(char *word, unsigned length) {
    unsigned n;
    for (n = 0; n < length; n++)
        word[n] = (char)('a' + draw(4));
    word[n] = 0;
}

int main(int argc, char **argv) {
    int chapters = argc > 1 ? atoi(argv[1]) : 15, chapter, n;
    char word[20];
    int most = 0;
    for (chapter = 0; chapter < chapters; chapter++)
        for (n = 0; n < 2500; n++) {
            make_word(word, 2 + (unsigned)(chapter % 5) * 3 + draw(3));
            add(word);
        }
    for (n = 0; n < BUCKETS; n++) {
        struct entry *one;
        for (one = table[n]; one; one = one->next)
            if (one->count > most)
                most = one->count;
    }
    printf("%d\n", most);
    return 0;
}
