/* Reading Chakra nodes: length-prefixed protobuf messages to columns.
 *
 * A file is a sequence of (varint length, message). This part sees the Node messages of schema
 * 0.0.4 = 1.0.0 only; the GlobalMetadata message before them is small and handled in Python.
 *
 * Reading takes two passes over the same bytes: the first one checks everything and counts, so that
 * the caller can allocate exactly; the second one fills the columns. Nothing is allocated from a
 * number found in the file, and no pointer moves past the end of the innermost message.
 */
#include "wire.h"
#include "cursor.h"

typedef struct {
    const uint8_t *base;
    totals_t n;
    const columns_t *out; /* NULL while counting */
    pool_t *strings, *blobs;
    fault_t *fault;
} sink_t;

static int bad_field(sink_t *sink, uint64_t number) {
    sink->fault->detail = (int64_t)number;
    return BAD_FIELD;
}

/* Skip a field that is newer than the known schemas, and count it. */
static int skip_unknown(sink_t *sink, cursor_t *in, int64_t message, uint64_t number, int kind) {
    totals_t *n = &sink->n;
    if (number > MOST_FIELDS) return bad_field(sink, number);
    int status = skip_field(in, kind);
    if (status == BAD_FIELD) return bad_field(sink, number);
    if (status) return status;
    int64_t at = 0;
    while (at < n->kinds_unknown &&
           (n->unknown[at].message != message || n->unknown[at].number != (int64_t)number))
        at++;
    if (at == MOST_UNKNOWN) at--; /* the last entry counts all that follow */
    if (at == n->kinds_unknown) {
        n->unknown[at] = (unknown_t){message, (int64_t)number, 0, n->nodes};
        n->kinds_unknown++;
    }
    n->unknown[at].count++;
    return OK;
}

static int put_text(sink_t *sink, cursor_t *in, pool_t *pool, int64_t *index) {
    cursor_t text;
    int status = read_span(in, &text);
    if (status || !sink->out) return status;
    return wire_pool_add(pool, sink->base, text.at, (size_t)(text.end - text.at), index);
}

static int scan_dep(cursor_t *in, int64_t *count, uint64_t *column) {
    uint64_t id;
    int status = read_varint(in, &id);
    if (status) return status;
    if (column) column[*count] = id;
    ++*count;
    return OK;
}

static int scan_deps(cursor_t *in, int kind, int64_t *count, uint64_t *column) {
    if (kind == VARINT) return scan_dep(in, count, column);
    cursor_t packed;
    int status = read_span(in, &packed);
    while (!status && packed.at < packed.end) status = scan_dep(&packed, count, column);
    return status;
}

static int scan_io(sink_t *sink, cursor_t *in, int32_t *columns) {
    cursor_t message;
    int status = read_span(in, &message);
    /* An empty message that is present is kept apart from an absent one by an empty string. */
    if (!status && sink->out && message.at == message.end && columns[0] < 0) {
        int64_t index;
        status = wire_pool_add(sink->strings, sink->base, message.at, 0, &index);
        if (!status) columns[0] = (int32_t)index;
    }
    while (!status && message.at < message.end) {
        uint64_t number;
        int kind;
        int64_t index = -1;
        if ((status = read_tag(&message, &number, &kind))) break;
        if (number > 3) {
            status = skip_unknown(sink, &message, IN_IO, number, kind);
            continue;
        }
        if (number < 1 || kind != LENGTH) return bad_field(sink, number);
        status = put_text(sink, &message, sink->strings, &index);
        if (!status && sink->out) columns[number - 1] = (int32_t)index;
    }
    return status;
}

static uint64_t to_word(uint64_t number, uint64_t raw) {
    switch (number) {
    case 7:
    case 23: return (uint64_t)(int64_t)(int32_t)(uint32_t)raw;
    case 11: return (uint32_t)raw;
    case 15:
    case 17: {
        if (number == 15) raw = (uint32_t)raw;
        return (raw >> 1) ^ (0 - (raw & 1));
    }
    case 27: return raw != 0;
    default: return raw;
    }
}

/* A list is kept as it stands, so it is checked here once: elements of its type, packed or not. */
static int check_list(sink_t *sink, cursor_t *list, uint64_t scalar) {
    int wanted = wire_value_kind(scalar), status = OK;
    while (!status && list->at < list->end) {
        uint64_t number;
        int kind;
        cursor_t element;
        if ((status = read_tag(list, &number, &kind))) break;
        if (number != 1 || (kind != wanted && kind != LENGTH)) return bad_field(sink, number);
        if (kind != LENGTH) {
            status = skip_number(list, kind);
            continue;
        }
        status = read_span(list, &element);
        if (!status && scalar == 29 && !is_utf8(element)) return BAD_TEXT;
        while (!status && wanted != LENGTH && element.at < element.end)
            status = skip_number(&element, wanted);
    }
    return status;
}

static int scan_value(sink_t *sink, cursor_t *in, uint64_t number, int kind, uint64_t *word) {
    if (number < 3 || number > 32 || kind != wire_value_kind(number)) return bad_field(sink, number);
    uint64_t raw = 0;
    int status;
    if (kind == VARINT) {
        status = read_varint(in, &raw);
    } else if (kind == LENGTH) {
        int64_t index = 0;
        cursor_t list = *in, elements;
        if (number % 2 == 0 &&
            ((status = read_span(&list, &elements)) || (status = check_list(sink, &elements, number - 1))))
            return status;
        status = put_text(sink, in, number == 29 ? sink->strings : sink->blobs, &index);
        *word = (uint64_t)index;
        return status;
    } else {
        status = read_fixed(in, kind == FIXED64 ? 8 : 4, &raw);
    }
    *word = to_word(number, raw);
    return status;
}

static int scan_attribute(sink_t *sink, cursor_t *in) {
    cursor_t message;
    int status = read_span(in, &message);
    int64_t name = -1, doc = -1;
    uint64_t wire = 0, word = 0;
    while (!status && message.at < message.end) {
        uint64_t number;
        int kind;
        if ((status = read_tag(&message, &number, &kind))) break;
        if (number <= 2 && kind == LENGTH && number > 0) {
            status = put_text(sink, &message, sink->strings, number == 1 ? &name : &doc);
        } else if (number > 32) {
            status = skip_unknown(sink, &message, IN_ATTRIBUTE, number, kind);
        } else {
            status = scan_value(sink, &message, number, kind, &word);
            wire = number;
        }
    }
    if (!status && sink->out) {
        int64_t row = sink->n.attributes;
        sink->out->attr_name[row] = (int32_t)name;
        sink->out->attr_doc[row] = (int32_t)doc;
        sink->out->attr_wire[row] = (uint8_t)wire;
        sink->out->attr_word[row] = word;
    }
    sink->n.attributes++;
    return status;
}

/* Node.storage is kept as it stands, as an attribute row without a name. The schemas 0.0.2 and 0.0.3
 * have attributes in its place, which begin with a name (field 1 of bytes) instead of a level. */
static int scan_storage(sink_t *sink, cursor_t *in) {
    cursor_t span = *in, message;
    int64_t index = 0;
    int status = read_span(&span, &message);
    while (!status && message.at < message.end) {
        uint64_t number;
        int kind;
        if ((status = read_tag(&message, &number, &kind))) break;
        if (number == 0 || (number == 1 && kind != VARINT) ||
            (number >= 10 && number <= 12 && kind != LENGTH))
            return bad_field(sink, STORAGE_FIELD);
        if (number == 1 || (number >= 10 && number <= 12))
            status = skip_field(&message, kind);
        else
            status = skip_unknown(sink, &message, IN_STORAGE, number, kind);
    }
    if (!status) status = put_text(sink, in, sink->blobs, &index);
    if (!status && sink->out) {
        int64_t row = sink->n.attributes;
        sink->out->attr_name[row] = STORAGE_ROW;
        sink->out->attr_doc[row] = -1;
        sink->out->attr_wire[row] = 31;
        sink->out->attr_word[row] = (uint64_t)index;
    }
    sink->n.attributes++;
    return status;
}

static int scan_number(sink_t *sink, cursor_t *in, uint64_t number) {
    uint64_t value;
    int64_t row = sink->n.nodes;
    int status = read_varint(in, &value);
    if (status) return status;
    if (number == 1) {
        sink->fault->id = value;
        sink->fault->has_id = 1;
    }
    if (number == 3 && value > LAST_TYPE) {
        sink->fault->detail = (int64_t)value;
        return BAD_TYPE;
    }
    if (!sink->out) return OK;
    switch (number) {
    case 1: sink->out->id[row] = value; break;
    case 3: sink->out->type[row] = (uint8_t)value; break;
    case 6: sink->out->start_us[row] = value; break;
    default: sink->out->duration_us[row] = value; break;
    }
    return OK;
}

static int scan_field(sink_t *sink, cursor_t *in, uint64_t number, int kind) {
    const columns_t *out = sink->out;
    int64_t row = sink->n.nodes;
    if (kind == VARINT && (number == 1 || number == 3 || number == 6 || number == 7))
        return scan_number(sink, in, number);
    if ((kind == VARINT || kind == LENGTH) && number == 4)
        return scan_deps(in, kind, &sink->n.ctrl_deps, out ? out->ctrl_deps : NULL);
    if ((kind == VARINT || kind == LENGTH) && number == 5)
        return scan_deps(in, kind, &sink->n.data_deps, out ? out->data_deps : NULL);
    if (kind == LENGTH && number == 2) {
        int64_t index = -1;
        int status = put_text(sink, in, sink->strings, &index);
        if (!status && out) out->name[row] = (int32_t)index;
        return status;
    }
    if (kind == LENGTH && (number == 8 || number == 9))
        return scan_io(sink, in, out ? out->io + 6 * row + 3 * (number - 8) : NULL);
    if (kind == LENGTH && number == 10) return scan_attribute(sink, in);
    if (kind == LENGTH && number == STORAGE_FIELD) return scan_storage(sink, in);
    if (number > STORAGE_FIELD) return skip_unknown(sink, in, IN_NODE, number, kind);
    return bad_field(sink, number);
}

static void begin_node(sink_t *sink) {
    int64_t row = sink->n.nodes;
    const columns_t *out = sink->out;
    sink->fault->node = row;
    sink->fault->has_id = 0;
    if (!out) return;
    out->id[row] = out->start_us[row] = out->duration_us[row] = 0;
    out->name[row] = -1;
    out->type[row] = 0;
    for (int i = 0; i < 6; i++) out->io[6 * row + i] = -1;
}

static void end_node(sink_t *sink) {
    int64_t next = ++sink->n.nodes;
    if (!sink->out) return;
    sink->out->data_ptr[next] = sink->n.data_deps;
    sink->out->ctrl_ptr[next] = sink->n.ctrl_deps;
    sink->out->attr_ptr[next] = sink->n.attributes;
}

static int scan_frame(cursor_t *file, cursor_t *node) {
    const uint8_t *begin = file->at;
    uint64_t length;
    int status = read_varint(file, &length);
    if (status) return status;
    if (file->at - begin > 5) return LONG_VARINT;
    if (length > (uint64_t)(file->end - file->at)) return CUT_OFF;
    node->at = file->at;
    node->end = file->at += length;
    return OK;
}

static int scan(sink_t *sink, int64_t start, int64_t size) {
    cursor_t file = {sink->base + start, sink->base + size};
    while (file.at < file.end) {
        cursor_t node = file;
        begin_node(sink);
        sink->fault->offset = file.at - sink->base;
        int status = scan_frame(&file, &node);
        while (!status && node.at < node.end) {
            uint64_t number;
            int kind;
            sink->fault->offset = node.at - sink->base;
            status = read_tag(&node, &number, &kind);
            if (!status) status = scan_field(sink, &node, number, kind);
        }
        if (status) return status;
        end_node(sink);
    }
    return OK;
}

/* Check the nodes in data[start:size] and count what they hold. */
EXPORT int32_t wire_count(
    const uint8_t *data, int64_t start, int64_t size, totals_t *totals, fault_t *fault) {
    sink_t sink = {data, {0}, NULL, NULL, NULL, fault};
    int status = scan(&sink, start, size);
    *totals = sink.n;
    return status;
}

/* Fill columns that are as long as wire_count said for the same bytes. */
EXPORT int32_t wire_read(const uint8_t *data, int64_t start, int64_t size, const columns_t *out,
    pool_t *strings, pool_t *blobs, fault_t *fault) {
    sink_t sink = {data, {0}, out, strings, blobs, fault};
    out->data_ptr[0] = out->ctrl_ptr[0] = out->attr_ptr[0] = 0;
    return scan(&sink, start, size);
}
