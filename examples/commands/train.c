/* C: cc -O2 -o train train.c */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **arguments) {
    double lr = 0.01, momentum = 0, x = 5, velocity = 0;
    char state[4096], draft[4096];
    int epoch = 0;
    for (int i = 1; i < count; i++) {
        sscanf(arguments[i], "--lr=%lf", &lr);
        sscanf(arguments[i], "--momentum=%lf", &momentum);
    }
    snprintf(state, sizeof state, "%s/state", getenv("AUTOML_CHECKPOINT_DIR"));
    snprintf(draft, sizeof draft, "%s/state.new", getenv("AUTOML_CHECKPOINT_DIR"));
    if (getenv("AUTOML_RESUME")) {
        FILE *file = fopen(state, "r");
        if (!file || fscanf(file, "%d %lf %lf", &epoch, &x, &velocity) != 3) {
            fprintf(stderr, "%s cannot be read\n", state);
            return 1;
        }
        fclose(file);
    }
    while (epoch < 27 && access(getenv("AUTOML_STOP"), F_OK) != 0) {
        epoch++;
        velocity = momentum * velocity - lr * x;
        x += velocity;
        FILE *file = fopen(draft, "w");
        FILE *reports = fopen(getenv("AUTOML_REPORTS"), "a");
        if (!file || !reports) {
            perror("train");
            return 1;
        }
        fprintf(file, "%d %.17g %.17g\n", epoch, x, velocity);
        fprintf(reports, "{\"step\": %d, \"loss\": %.9g}\n", epoch, x * x);
        if (fclose(reports) || fclose(file) || rename(draft, state)) {
            perror("train");
            return 1;
        }
    }
    return 0;
}
