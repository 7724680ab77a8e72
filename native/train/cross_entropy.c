/* Cross entropy of rows of logits and its gradient. */
#include <math.h>
#include <stdlib.h>

#include "train.h"

enum { NOT_A_TARGET = -100 }; /* targets.py */

/* Replace logits (`rows`, codes) by the gradients of the sum of their cross entropies, which is added
 * to `loss`; the gradients of each code are added up in `sum`. Rows that are no targets, and those up
 * to `all`, have zeros. Where `without_first` says so, the first code is excluded.
 *
 * Args: codes chosen, a number of columns apart. Returns 0, -1 without memory, or NO_SUCH_CODE. */
FUSED EXPORT int64_t train_cross_entropy(int64_t rows, int64_t all, int64_t codes, const matrix_t *logits,
    const int64_t *chosen, int64_t columns, const uint8_t *without_first, float *sum, double *loss) {
    const int64_t room = (codes + 7) / 8 * 8;
    float *row = malloc((size_t)room * sizeof *row);
    if (!row) return -1;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t code = chosen[r * columns];
        if (code == NOT_A_TARGET) {
            clear(*logits, r * codes, codes);
            continue;
        }
        if (code < 0 || code >= codes) {
            free(row);
            return NO_SUCH_CODE;
        }
        load(*logits, r * codes, codes, row);
        if (without_first && without_first[r]) row[0] = -INFINITY;
        const float top = largest_of(row, codes), found = row[code];
        eight_t total = {0};
        for (int64_t k = 0; k < room; k += 8) {
            eight_t *x = (eight_t *)(row + k);
            *x = exp_of(-not_above(top - *x, 87));
            total += *x;
        }
        const float all_codes = sum_of(total);
        *loss += (double)(logf(all_codes) + top - found);
        for (int64_t k = 0; k < codes; k++) row[k] /= all_codes;
        row[code] -= 1;
        if (without_first && without_first[r]) row[0] = 0;
        for (int64_t k = 0; k < codes; k++) sum[k] += row[k];
        store(*logits, r * codes, codes, row);
    }
    clear(*logits, rows * codes, (all - rows) * codes);
    free(row);
    return 0;
}
