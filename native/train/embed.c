/* Sums of embeddings of codes (SumEmbedding in layers.py), and their gradients. */
#include "train.h"

/* Write the sum of the embeddings of each row's codes, (rows, columns), the first code of each column
 * at `offset` in the table of `codes` rows. Returns 0 or NO_SUCH_CODE. */
FUSED EXPORT int64_t train_embed(int64_t codes, int64_t rows, int64_t columns, int64_t width,
    const int64_t *code, const int64_t *offset, const float *table, float *out) {
    for (int64_t r = 0; r < rows; r++) {
        float *to = out + r * width;
        memset(to, 0, (size_t)width * sizeof *to);
        for (int64_t f = 0; f < columns; f++) {
            const int64_t at = code[r * columns + f] + offset[f];
            if (at < 0 || at >= codes) return NO_SUCH_CODE;
            add_to(to, table + at * width, width);
        }
    }
    return 0;
}

/* Add the gradient of each row to those of its codes' embeddings. */
FUSED EXPORT int64_t train_embed_backward(int64_t rows, int64_t columns, int64_t width, const int64_t *code,
    const int64_t *offset, const float *gradient, float *table) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t f = 0; f < columns; f++)
            add_to(table + (code[r * columns + f] + offset[f]) * width, gradient + r * width, width);
    return 0;
}

/* Add the embedding of each row's code, or take it away. Returns 0 or NO_SUCH_CODE. */
FUSED EXPORT int64_t train_shift(int64_t codes, int64_t rows, int64_t width, const int64_t *code,
    const float *table, float factor, float *row) {
    for (int64_t r = 0; r < rows; r++) {
        if (code[r] < 0 || code[r] >= codes) return NO_SUCH_CODE;
        add_product(row + r * width, factor, table + code[r] * width, width);
    }
    return 0;
}
