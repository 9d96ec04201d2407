#include <math.h>
#include <stdio.h>

int main(void) {
  double sum = 0;
  for (int i = 1; i < 1000; i++) sum += sin(i) / i;
  printf("%.6f\n", sum);
  return 0;
}
