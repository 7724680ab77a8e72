/* Nodes of a PyTorch host execution trace (JSON) as records. Kept in step with
 * layerdag/traces/pytorch/host_trace.py. */
#ifndef LAYERDAG_HOST_SCAN_H
#define LAYERDAG_HOST_SCAN_H

#include "json_text.h"
#include "../wire/wire.h"

/* Fields that a fault can name. */
enum {
    NO_FIELD,
    F_ID,
    F_NAME,
    F_PARENT,
    F_INPUTS,
    F_OUTPUTS,
    F_ATTRS,
    F_VALUES,
    F_SHAPES,
    F_TYPES,
    F_STRIDES,
    F_SCHEMA,
    F_RF_ID,
    F_TID
};

typedef struct {
    int64_t id, rf_id, tid, parent;
    int64_t begin, end;      /* where the node stands in the text */
    int64_t inputs, outputs; /* first tensor of each; the outputs end where the next node begins */
    int64_t kind;            /* distinct (name, schema, is Triton kernel) */
} node_t;

typedef struct {
    int64_t storage, begin, end, bytes;
    int64_t shape; /* first of its sizes */
    int32_t dims, position;
    int32_t dtype, device; /* distinct names */
} tensor_t;

typedef struct {
    void *data;
    int64_t size, capacity;
} vector_t;

/* Distinct strings that outlive the text they were found in. */
typedef struct {
    pool_t *pool;
    uint8_t *bytes;
    size_t used, capacity;
} names_t;

typedef struct {
    vector_t nodes, tensors, sizes;
    vector_t ignored; /* a byte for each kind: 1 where the tensors are not needed */
    names_t kinds, words;
    int64_t fault_field, fault_id;
    int flat;
} host_t;

/* Argument lists of one node: spans of the four parallel lists. */
typedef struct {
    text_t values, shapes, types, strides;
} held_t;

int host_push(vector_t *vector, const void *record, size_t width);
int host_name(names_t *names, const text_t *parts, int count, int64_t *index);
int host_tensors(host_t *host, const held_t *held);

#endif
