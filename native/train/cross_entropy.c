/* Cross entropy of rows of logits and its gradient. */
#include <stdlib.h>

#include "rows.h"

/* Replace logits (`rows`, codes) by the gradients of the sum of their cross entropies, which is added
 * to `loss`; the gradients of each code are added up in `sum`. Rows that are no targets, and those up
 * to `all`, have zeros. Where `without_first` says so, the first code is excluded.
 *
 * Args: codes chosen, a number of columns apart. Returns 0, -1 without memory, or NO_SUCH_CODE. */
FUSED EXPORT int64_t train_cross_entropy(int64_t rows, int64_t all, int64_t codes, const matrix_t *logits,
    const int64_t *chosen, int64_t columns, const uint8_t *without_first, float *sum, double *loss) {
    float *row = malloc((size_t)(codes + 8) * sizeof *row);
    if (!row) return -1;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t code = chosen[r * columns];
        if (!is_code(code, codes)) {
            free(row);
            return NO_SUCH_CODE;
        }
        load(*logits, r * codes, codes, row);
        *loss += (double)cross_entropy_row(row, codes, code, without_first && without_first[r]);
        for (int64_t k = 0; k < codes; k++) sum[k] += row[k];
        store(*logits, r * codes, codes, row);
    }
    clear(*logits, rows * codes, (all - rows) * codes);
    free(row);
    return 0;
}
