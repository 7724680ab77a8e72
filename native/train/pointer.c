/* Cross entropy of the choice of parents among candidate tokens and blocks, and its gradient. */
#include <math.h>
#include <stdlib.h>

#include "train.h"

/* Kept in step with _Candidates in fused_losses.py. A pair is a decision and a candidate: tokens, then
 * blocks. */
typedef struct {
    int64_t tokens, blocks;                             /* pairs */
    const int64_t *token_decision, *token, *token_code; /* four codes of each pair */
    const int64_t *block_decision, *block, *block_code;
    const int64_t *softmax, *chosen; /* of each pair; pair chosen in each softmax */
    const float *padding;            /* 1 for softmaxes that do not count */
    int64_t softmaxes, width, columns;
    int64_t token_codes, block_codes; /* numbers of scores by codes */
    int64_t offset[4];
    float scale;
} candidates_t;

/* A decision's row of the projection is its query of tokens, its query of blocks, the scores of its
 * token codes and of its block codes. */
INLINE float score_of(const float *query, const float *key, int64_t width) {
    eight_t sum = {0};
    for (int64_t i = 0; i < width; i += 8) sum += *(const eight_t *)(query + i) * *(const eight_t *)(key + i);
    return sum_of(sum);
}

/* Write the loss, summed, and add up the gradients of projections and keys.
 *
 * Returns 0, -1 without memory, or NO_SUCH_CODE where a parent is no candidate. */
FUSED EXPORT int64_t train_pointer(const candidates_t *c, const float *projection, const float *key,
    const float *block_key, double *loss, float *of_projection, float *of_key, float *of_block_key) {
    const int64_t width = c->width, pairs = c->tokens + c->blocks, first_code = 2 * width;
    const int64_t first_block_code = first_code + c->token_codes;
    float *score = malloc((size_t)(pairs + 8) * sizeof *score);
    float *top = malloc((size_t)c->softmaxes * sizeof *top + 1);
    float *total = calloc((size_t)c->softmaxes + 1, sizeof *total);
    int64_t rc = score && top && total ? 0 : -1;
    if (rc) goto done;
    for (int64_t g = 0; g < c->softmaxes; g++) {
        top[g] = -INFINITY;
        if (c->padding[g] == 0 && (c->chosen[g] < 0 || c->chosen[g] >= pairs)) rc = NO_SUCH_CODE;
    }
    if (rc) goto done;
    for (int64_t p = 0; p < c->tokens; p++) {
        const float *from = projection + c->token_decision[p] * c->columns;
        float sum = score_of(from, key + c->token[p] * width, width) * c->scale;
        for (int64_t f = 0; f < 4; f++) sum += from[first_code + c->offset[f] + c->token_code[4 * p + f]];
        score[p] = sum;
    }
    for (int64_t b = 0; b < c->blocks; b++) {
        const float *from = projection + c->block_decision[b] * c->columns;
        score[c->tokens + b] = score_of(from + width, block_key + c->block[b] * width, width) * c->scale +
                               from[first_block_code + c->block_code[b]];
    }
    for (int64_t p = 0; p < pairs; p++) {
        float *most = top + c->softmax[p];
        *most = score[p] > *most ? score[p] : *most;
    }
    double sum = 0;
    for (int64_t g = 0; g < c->softmaxes; g++)
        if (c->padding[g] == 0) sum += (double)(top[g] - score[c->chosen[g]]);
    for (int64_t p = 0; p < pairs; p++) {
        const float less = score[p] - top[c->softmax[p]];
        score[p] = less < -87 ? -87 : less;
    }
    for (int64_t p = pairs; p < pairs + 8; p++) score[p] = -87;
    for (int64_t p = 0; p < pairs; p += 8) {
        eight_t *x = (eight_t *)(score + p);
        *x = exp_of(*x);
    }
    for (int64_t p = 0; p < pairs; p++) total[c->softmax[p]] += score[p];
    for (int64_t g = 0; g < c->softmaxes; g++)
        if (c->padding[g] == 0) sum += (double)logf(total[g]);
    *loss = sum;
    for (int64_t p = 0; p < pairs; p++) {
        const int64_t g = c->softmax[p];
        score[p] = c->padding[g] == 0 ? score[p] / total[g] : 0;
    }
    for (int64_t g = 0; g < c->softmaxes; g++)
        if (c->padding[g] == 0) score[c->chosen[g]] -= 1;
    for (int64_t p = 0; p < c->tokens; p++) {
        const int64_t at = c->token_decision[p] * c->columns, k = c->token[p] * width;
        add_product(of_projection + at, score[p] * c->scale, key + k, width);
        add_product(of_key + k, score[p] * c->scale, projection + at, width);
        for (int64_t f = 0; f < 4; f++)
            of_projection[at + first_code + c->offset[f] + c->token_code[4 * p + f]] += score[p];
    }
    for (int64_t b = 0; b < c->blocks; b++) {
        const int64_t at = c->block_decision[b] * c->columns, k = c->block[b] * width;
        const float d = score[c->tokens + b];
        add_product(of_projection + at + width, d * c->scale, block_key + k, width);
        add_product(of_block_key + k, d * c->scale, projection + at + width, width);
        of_projection[at + first_block_code + c->block_code[b]] += d;
    }
done:
    free(score);
    free(top);
    free(total);
    return rc;
}
