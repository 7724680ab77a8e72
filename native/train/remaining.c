/* Features of how many nodes and layers of a graph are still to come (RemainingSizes in tokens.py). */
#include <stdlib.h>

#include "../remaining.h"
#include "train.h"

/* Write the features of nodes and of layers, (tokens, 2 * (octaves + fractions + 1)), from how many
 * are there before each token and how many are asked for (tokens, 2). Returns 0, or -1 without memory. */
FUSED EXPORT int64_t train_remaining(int64_t tokens, const int64_t *position, const int64_t *layer,
    const float *asked, int64_t octaves, float octave, int64_t fractions, float fraction, float *out) {
    const centers_t centers = {(int32_t)octaves, (int32_t)fractions, octave, fraction};
    const int64_t columns = columns_of(centers);
    float *row = malloc((size_t)(columns + ROOM_BEHIND) * sizeof *row);
    if (!row) return -1;
    for (int64_t t = 0; t < 2 * tokens; t++) {
        remaining_row(centers, (float)(t % 2 ? layer : position)[t / 2], asked[t], row);
        memcpy(out + t * columns, row, (size_t)columns * sizeof *out);
    }
    free(row);
    return 0;
}
