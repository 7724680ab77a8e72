/* The tensors in the arguments of a traced operator, from lists that run in parallel:
 * values [[tensor id, storage, offset, elements, bytes an element, device], ...], shapes, type names
 * "Tensor(float)", and strides, all nested alike. The lists were checked to be JSON before. */
#include "scan.h"

#define WHOLE (INT64_C(1) << 62)

/* Product, cut to WHOLE in size. */
static int64_t times(int64_t a, int64_t b) {
    if (a == 0 || b == 0) return 0;
    int negative = (a < 0) != (b < 0);
    uint64_t size_a = a < 0 ? -(uint64_t)a : (uint64_t)a, size_b = b < 0 ? -(uint64_t)b : (uint64_t)b;
    uint64_t size = size_a > (uint64_t)WHOLE / size_b ? (uint64_t)WHOLE : size_a * size_b;
    return negative ? -(int64_t)size : (int64_t)size;
}

/* Sum of two that are at most WHOLE in size, cut to it. */
static int64_t plus(int64_t a, int64_t b) {
    if (a > 0 && b > WHOLE - a) return WHOLE;
    if (a < 0 && b < -WHOLE - a) return -WHOLE;
    return a + b;
}

/* The data types in a type name: "GenericList[Tensor(float),Tensor(int)]"; the last one repeats. */
typedef struct {
    text_t left, last;
} dtypes_t;

static text_t next_dtype(dtypes_t *in) {
    while (in->left.end - in->left.at > 7) {
        if (memcmp(in->left.at, "Tensor(", 7) != 0) {
            in->left.at++;
            continue;
        }
        const uint8_t *begin = in->left.at += 7, *at = begin;
        while (at < in->left.end && *at != '(' && *at != ')') at++;
        if (at >= in->left.end || *at == '(') continue;
        in->last = (text_t){begin, at};
        in->left.at = at + 1;
        return in->last;
    }
    return in->last;
}

/* Span of the next element of a list whose bracket was taken; JSON_END after the last one. */
static int element(text_t *list, int *first, text_t *value) {
    int status = json_next(list, ']', first);
    return status ? status : json_span(list, value);
}

/* Sizes times strides: elements from the first to one past the last. Sizes are recorded. */
static int extent(host_t *host, text_t shape, text_t strides, int64_t count, int64_t *reach) {
    int first_size = 1, first_stride = 1, status, strided = 0;
    int64_t size, stride;
    *reach = 1;
    if (json_take(&shape, '[')) return JSON_FIELD;
    int has_strides = strides.at && json_sees(&strides, '[') && !json_take(&strides, '[');
    while ((status = json_next(&shape, ']', &first_size)) == JSON_OK) {
        if (json_integer(&shape, &size) || host->sizes.size >= INT32_MAX) return JSON_FIELD;
        if (host_push(&host->sizes, &size, sizeof size)) return JSON_MEMORY;
        if (!has_strides || json_next(&strides, ']', &first_stride) != JSON_OK) {
            has_strides = 0;
            continue;
        }
        if (json_integer(&strides, &stride)) return JSON_FIELD;
        strided = 1;
        *reach = plus(*reach, times(size - 1, stride));
    }
    if (status != JSON_END) return JSON_FIELD;
    if (!strided) *reach = first_size ? count : WHOLE;
    if (strided && *reach < 1) *reach = 1;
    return JSON_OK;
}

static int device_name(host_t *host, text_t text, int32_t *index) {
    const uint8_t *colon = memchr(text.at, ':', (size_t)(text.end - text.at));
    if (colon) text.end = colon;
    int64_t found;
    int status = host_name(&host->words, &text, 1, &found);
    *index = (int32_t)found;
    return status;
}

/* Whether a list is a tensor: six elements, the second an integer, the last a string. */
static int is_tensor(text_t list, int64_t field[5], text_t *device) {
    text_t value;
    int first = 1, count = 0;
    int64_t ignored;
    json_take(&list, '[');
    for (; count < 7 && element(&list, &first, &value) == JSON_OK; count++) {
        text_t whole = {value.at, list.end};
        if (count == 5) {
            if (!json_sees(&value, '"')) return 0;
            value.end = list.end;
            json_string(&value, device);
        } else if (count == 1 && json_integer(&whole, &ignored)) {
            return 0;
        }
        whole.at = value.at;
        if (count < 5 && json_integer(&whole, &field[count])) field[count] = INT64_MIN;
    }
    return count == 6;
}

static int add_tensor(host_t *host, const int64_t field[5], text_t device, text_t shape, text_t strides,
    text_t dtype, int32_t position) {
    int64_t reach, word;
    for (int i = 2; i < 5; i++)
        if (field[i] == INT64_MIN) return JSON_FIELD;
    if (field[3] == 0) return JSON_OK; /* nothing in memory */
    tensor_t tensor = {.storage = field[1], .shape = host->sizes.size, .position = position};
    int status = extent(host, shape, strides, field[3], &reach);
    if (status) return status;
    tensor.dims = (int32_t)(host->sizes.size - tensor.shape);
    tensor.begin = times(field[2], field[4]);
    tensor.end = plus(tensor.begin, times(reach, field[4]));
    tensor.bytes = times(field[3], field[4]);
    if ((status = device_name(host, device, &tensor.device))) return status;
    if ((status = host_name(&host->words, &dtype, 1, &word))) return status;
    tensor.dtype = (int32_t)word;
    return host_push(&host->tensors, &tensor, sizeof tensor);
}

static int leaves(
    host_t *host, text_t value, text_t shape, text_t strides, dtypes_t *dtypes, int32_t position) {
    int64_t field[5];
    text_t device, inner, inner_shape, inner_strides, none = {0};
    int first = 1, first_shape = 1, first_strides = 1, status;
    if (!json_sees(&value, '[')) return JSON_OK;
    if (is_tensor(value, field, &device))
        return add_tensor(host, field, device, shape, strides, next_dtype(dtypes), position);
    json_take(&value, '[');
    if (json_sees(&value, ']') || !(json_sees(&value, '[') || json_sees(&value, '"'))) return JSON_OK;
    if (!json_sees(&shape, '[')) return JSON_OK;
    json_take(&shape, '[');
    int strided = strides.at && json_sees(&strides, '[') && !json_take(&strides, '[');
    while ((status = element(&value, &first, &inner)) == JSON_OK) {
        if (element(&shape, &first_shape, &inner_shape) != JSON_OK) return JSON_OK;
        strided = strided && element(&strides, &first_strides, &inner_strides) == JSON_OK;
        status = leaves(host, inner, inner_shape, strided ? inner_strides : none, dtypes, position);
        if (status) return status;
    }
    return JSON_OK;
}

static int holds_tensor(text_t type) {
    for (; type.end - type.at >= 6; type.at++)
        if (*type.at == 'T' && memcmp(type.at, "Tensor", 6) == 0) return 1;
    return 0;
}

/* Record the tensors of an argument list; those without elements are left out. */
int host_tensors(host_t *host, const held_t *held) {
    held_t in = *held;
    text_t type, value, shape, strides, none = {0};
    int first[4] = {1, 1, 1, 1}, status;
    if (json_take(&in.values, '[')) return host->fault_field = F_VALUES, JSON_FIELD;
    if (json_take(&in.shapes, '[')) return host->fault_field = F_SHAPES, JSON_FIELD;
    if (json_take(&in.types, '[')) return host->fault_field = F_TYPES, JSON_FIELD;
    int strided = in.strides.at && !json_take(&in.strides, '[');
    for (int32_t at = 0; json_next(&in.types, ']', &first[0]) == JSON_OK; at++) {
        if (json_string(&in.types, &type)) return host->fault_field = F_TYPES, JSON_FIELD;
        if (element(&in.values, &first[1], &value) != JSON_OK) break;
        int shaped = element(&in.shapes, &first[2], &shape) == JSON_OK;
        strided = strided && element(&in.strides, &first[3], &strides) == JSON_OK;
        if (!holds_tensor(type)) continue;
        if (!shaped) return host->fault_field = F_SHAPES, JSON_FIELD;
        dtypes_t dtypes = {type, {type.at, type.at}};
        status = leaves(host, value, shape, strided ? strides : none, &dtypes, at);
        if (status == JSON_FIELD) host->fault_field = F_VALUES;
        if (status) return status;
    }
    return JSON_OK;
}
