/* Reader of the node list of a PyTorch host execution trace, a stretch of text at a time.
 *
 * A node is checked to be JSON and its parts are found; then its tensors are read. Memory is that of
 * the largest stretch, and of the distinct names. Records are valid until the next scan.
 */
#include <stdlib.h>

#include "scan.h"

pool_t *wire_pool_new(uint64_t seed);
void wire_pool_free(pool_t *pool);

int host_push(vector_t *vector, const void *record, size_t width) {
    if (vector->size == vector->capacity) {
        int64_t capacity = vector->capacity ? vector->capacity * 2 : 256;
        void *data = realloc(vector->data, (size_t)capacity * width);
        if (!data) return JSON_MEMORY;
        vector->data = data;
        vector->capacity = capacity;
    }
    memcpy((char *)vector->data + (size_t)vector->size * width, record, width);
    vector->size++;
    return JSON_OK;
}

/* Index of the parts joined with zero bytes, which no JSON string holds. */
int host_name(names_t *names, const text_t *parts, int count, int64_t *index) {
    size_t length = 0;
    for (int i = 0; i < count; i++) length += (size_t)(parts[i].end - parts[i].at) + 1;
    if (length > UINT32_MAX) return JSON_MEMORY;
    if (names->capacity - names->used < length) {
        size_t capacity = (names->capacity + length) * 2;
        uint8_t *bytes = realloc(names->bytes, capacity);
        if (!bytes) return JSON_MEMORY;
        names->bytes = bytes;
        names->capacity = capacity;
    }
    uint8_t *text = names->bytes + names->used, *out = text;
    for (int i = 0; i < count; i++) {
        size_t size = (size_t)(parts[i].end - parts[i].at);
        if (size) memcpy(out, parts[i].at, size);
        out += size;
        *out++ = 0;
    }
    if (wire_pool_add(names->pool, names->bytes, text, length - 1, index)) return JSON_MEMORY;
    if (*index == names->pool->count - 1 && names->pool->spans[*index].offset == (int64_t)names->used)
        names->used += length;
    return JSON_OK;
}

/* Parts of a node as they are found. */
typedef struct {
    text_t name, schema, triton;
    held_t inputs, outputs;
    int64_t id, rf_id, tid, parent;
    int has_id, has_parent, has_attrs;
} parts_t;

static int fault(host_t *host, int field) {
    host->fault_field = field;
    return JSON_FIELD;
}

/* A value of the wanted kind, or a fault that names the field. */
static int integer_field(host_t *host, text_t *in, int64_t *value, int field) {
    int status = json_integer(in, value);
    return status == JSON_FIELD ? fault(host, field) : status;
}

static int string_field(host_t *host, text_t *in, text_t *value, int field) {
    json_space(in);
    if (in->at < in->end && *in->at != '"') return fault(host, field);
    return json_string(in, value);
}

static int open_field(host_t *host, text_t *in, uint8_t bracket, int field) {
    int status = json_take(in, bracket);
    return status == JSON_SYNTAX ? fault(host, field) : status;
}

/* Value of an attribute, whether it stands in "attrs" or beside the other fields. */
static int attribute(host_t *host, parts_t *parts, text_t key, text_t *in) {
    text_t ignored;
    if (text_is(key, "op_schema")) return string_field(host, in, &parts->schema, F_SCHEMA);
    if (text_is(key, "rf_id")) return integer_field(host, in, &parts->rf_id, F_RF_ID);
    if (text_is(key, "tid")) return integer_field(host, in, &parts->tid, F_TID);
    if (!host->flat && text_is(key, "kernel_backend") && json_sees(in, '"'))
        return json_string(in, &parts->triton);
    return json_span(in, &ignored);
}

/* {"name": ..., "type": ..., "value": ...} with the name before the value. */
static int attribute_object(host_t *host, parts_t *parts, text_t *in) {
    text_t key, name = {0}, ignored;
    int first = 1, valued = 0, status = open_field(host, in, '{', F_ATTRS);
    if (status) return status;
    while ((status = json_next(in, '}', &first)) == JSON_OK) {
        if ((status = json_key(in, &key))) return status;
        if (text_is(key, "name")) {
            status = string_field(host, in, &name, F_ATTRS);
        } else if (text_is(key, "value")) {
            if (!name.at) return fault(host, F_ATTRS);
            valued = 1;
            status = attribute(host, parts, name, in);
        } else {
            status = json_span(in, &ignored);
        }
        if (status) return status;
    }
    if (status == JSON_END && !valued) return fault(host, F_ATTRS);
    return status == JSON_END ? JSON_OK : status;
}

static int attributes(host_t *host, parts_t *parts, text_t *in) {
    int first = 1, status = open_field(host, in, '[', F_ATTRS);
    if (status) return status;
    while ((status = json_next(in, ']', &first)) == JSON_OK)
        if ((status = attribute_object(host, parts, in))) return status;
    parts->has_attrs = 1;
    return status == JSON_END ? JSON_OK : status;
}

/* {"values": [...], "shapes": [...], "types": [...], "strides": [...]} */
static int held_lists(host_t *host, text_t *in, held_t *held, int field) {
    text_t key, value;
    int first = 1, status = open_field(host, in, '{', field);
    if (status) return status;
    while ((status = json_next(in, '}', &first)) == JSON_OK) {
        if ((status = json_key(in, &key))) return status;
        if ((status = json_span(in, &value))) return status;
        if (text_is(key, "values"))
            held->values = value;
        else if (text_is(key, "shapes"))
            held->shapes = value;
        else if (text_is(key, "types"))
            held->types = value;
        else if (text_is(key, "strides"))
            held->strides = value;
    }
    return status == JSON_END ? JSON_OK : status;
}

static int parent_field(host_t *host, parts_t *parts, text_t *in) {
    parts->has_parent = 1;
    return integer_field(host, in, &parts->parent, F_PARENT);
}

static int flat_field(host_t *host, parts_t *parts, text_t key, text_t *in) {
    text_t *value = text_is(key, "inputs")          ? &parts->inputs.values
                    : text_is(key, "input_shapes")  ? &parts->inputs.shapes
                    : text_is(key, "input_types")   ? &parts->inputs.types
                    : text_is(key, "outputs")       ? &parts->outputs.values
                    : text_is(key, "output_shapes") ? &parts->outputs.shapes
                    : text_is(key, "output_types")  ? &parts->outputs.types
                                                    : NULL;
    if (value) return json_span(in, value);
    if (text_is(key, "parent")) return parent_field(host, parts, in);
    return attribute(host, parts, key, in);
}

static int nested_field(host_t *host, parts_t *parts, text_t key, text_t *in) {
    text_t ignored;
    if (text_is(key, "inputs")) return held_lists(host, in, &parts->inputs, F_INPUTS);
    if (text_is(key, "outputs")) return held_lists(host, in, &parts->outputs, F_OUTPUTS);
    if (text_is(key, "attrs")) return attributes(host, parts, in);
    if (text_is(key, "ctrl_deps")) return parent_field(host, parts, in);
    return json_span(in, &ignored);
}

static int node_field(host_t *host, parts_t *parts, text_t key, text_t *in) {
    if (text_is(key, "name")) return string_field(host, in, &parts->name, F_NAME);
    if (text_is(key, "id")) {
        int status = integer_field(host, in, &parts->id, F_ID);
        parts->has_id = !status;
        host->fault_id = parts->id;
        return status;
    }
    return host->flat ? flat_field(host, parts, key, in) : nested_field(host, parts, key, in);
}

static int missing_of(const held_t *held, int whole) {
    if (!held->values.at && !held->shapes.at && !held->types.at) return whole;
    return !held->values.at ? F_VALUES : !held->shapes.at ? F_SHAPES : !held->types.at ? F_TYPES : 0;
}

static int missing(const host_t *host, const parts_t *parts) {
    if (!parts->has_id) return F_ID;
    if (!parts->has_parent) return F_PARENT;
    if (!parts->name.at) return F_NAME;
    if (!host->flat && !parts->has_attrs) return F_ATTRS;
    int field = missing_of(&parts->inputs, F_INPUTS);
    return field ? field : missing_of(&parts->outputs, F_OUTPUTS);
}

static int read_parts(host_t *host, text_t *in, parts_t *parts) {
    text_t key;
    int first = 1, status = json_take(in, '{');
    if (status) return status == JSON_SYNTAX ? JSON_OBJECT : status;
    while ((status = json_next(in, '}', &first)) == JSON_OK) {
        if ((status = json_key(in, &key))) return status;
        if ((status = node_field(host, parts, key, in))) return status;
    }
    if (status != JSON_END) return status;
    int field = missing(host, parts);
    return field ? fault(host, field) : JSON_OK;
}

static int is_ignored(const host_t *host, int64_t kind) {
    return kind < host->ignored.size && ((const uint8_t *)host->ignored.data)[kind];
}

static int read_node(host_t *host, text_t *in, const uint8_t *data) {
    static const uint8_t yes[] = "1";
    parts_t parts = {0};
    node_t node = {.begin = in->at - data};
    int status = read_parts(host, in, &parts);
    if (status) return status;
    node.id = parts.id;
    node.rf_id = parts.rf_id;
    node.tid = parts.tid;
    node.parent = parts.parent;
    node.end = in->at - data;
    int triton = parts.triton.end > parts.triton.at;
    text_t told[3] = {parts.name, parts.schema, {yes, yes + triton}};
    if ((status = host_name(&host->kinds, told, 3, &node.kind))) return status;
    int read = !is_ignored(host, node.kind);
    node.inputs = host->tensors.size;
    if (read && (status = host_tensors(host, &parts.inputs))) return status;
    node.outputs = host->tensors.size;
    if (read && (status = host_tensors(host, &parts.outputs))) return status;
    return host_push(&host->nodes, &node, sizeof node);
}

/* Read the whole nodes in the text, which begins before a node, a comma or the closing bracket.
 *
 * Returns JSON_END at the end of the list, JSON_CUT where more text is needed, or a fault; used is
 * where the next node begins, or the faulty one. */
EXPORT int32_t host_scan(host_t *host, const uint8_t *data, int64_t size, int64_t *used) {
    text_t in = {data, data + size};
    int status;
    host->nodes.size = host->tensors.size = host->sizes.size = 0;
    for (;;) {
        while (json_sees(&in, ',')) in.at++;
        *used = in.at - data;
        host->fault_field = host->fault_id = 0;
        if (in.at >= in.end) return JSON_CUT;
        if (*in.at == ']') return JSON_END;
        if ((status = read_node(host, &in, data))) return status;
    }
}

/* Leave out the tensors of a kind from the next scan on. */
EXPORT int32_t host_ignore(host_t *host, int64_t kind) {
    static const uint8_t no = 0;
    while (host->ignored.size <= kind && kind < host->kinds.pool->count)
        if (host_push(&host->ignored, &no, 1)) return JSON_MEMORY;
    if (kind >= 0 && kind < host->ignored.size) ((uint8_t *)host->ignored.data)[kind] = 1;
    return JSON_OK;
}

EXPORT void host_free(host_t *host) {
    if (!host) return;
    free(host->nodes.data);
    free(host->tensors.data);
    free(host->sizes.data);
    free(host->ignored.data);
    free(host->kinds.bytes);
    free(host->words.bytes);
    wire_pool_free(host->kinds.pool);
    wire_pool_free(host->words.pool);
    free(host);
}

EXPORT host_t *host_new(uint64_t seed, int32_t flat) {
    host_t *host = calloc(1, sizeof *host);
    if (!host) return NULL;
    host->flat = flat;
    host->kinds.pool = wire_pool_new(seed);
    host->words.pool = wire_pool_new(seed);
    if (host->kinds.pool && host->words.pool) return host;
    host_free(host);
    return NULL;
}

/* Bytes of a distinct name: of a kind, or of a data type or device. */
EXPORT const uint8_t *host_text(const host_t *host, int32_t of_kind, int64_t index, int64_t *size) {
    const names_t *names = of_kind ? &host->kinds : &host->words;
    if (index < 0 || index >= names->pool->count) return NULL;
    *size = names->pool->spans[index].length;
    return names->bytes + names->pool->spans[index].offset;
}
