/* Stands for a program whose output stays in a buffer while it is a pipe. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **arguments) {
    double lr = atof(arguments[count - 1]);
    for (int epoch = 1; epoch <= 4; epoch++) {
        usleep(350000);
        printf("epoch %d loss %g\n", epoch, lr / epoch);
    }
    return 0;
}
