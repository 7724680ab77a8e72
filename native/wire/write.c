/* Writing Chakra nodes: columns to length-prefixed protobuf messages, in field order (proto3). */
#include <string.h>

#include "wire.h"

typedef struct {
    const uint8_t *bytes;
    const int64_t *ptr; /* text i is bytes[ptr[i]:ptr[i+1]] */
} texts_t;

static int64_t varint_size(uint64_t value) {
    int64_t size = 1;
    while (value > 0x7F) {
        value >>= 7;
        size++;
    }
    return size;
}

static uint8_t *put_varint(uint8_t *at, uint64_t value) {
    while (value > 0x7F) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

static int64_t text_length(const texts_t *texts, int64_t index) {
    return index < 0 ? 0 : texts->ptr[index + 1] - texts->ptr[index];
}

/* Every field number up to 15 has a tag of one byte; only attribute values go beyond. */
static int64_t tag_size(int number) { return number < 16 ? 1 : 2; }

static uint8_t *put_tag(uint8_t *at, int number, int kind) {
    return put_varint(at, (uint64_t)number << 3 | (uint64_t)kind);
}

static int64_t span_size(int number, int64_t length) {
    return tag_size(number) + varint_size((uint64_t)length) + length;
}

static uint8_t *put_span(uint8_t *at, int number, const texts_t *texts, int64_t index) {
    int64_t length = text_length(texts, index);
    at = put_tag(at, number, LENGTH);
    at = put_varint(at, (uint64_t)length);
    memcpy(at, texts->bytes + texts->ptr[index], (size_t)length);
    return at + length;
}

/* Proto3 leaves out an empty string. */
static int64_t text_size(int number, const texts_t *texts, int64_t index) {
    int64_t length = text_length(texts, index);
    return length ? span_size(number, length) : 0;
}

static uint8_t *put_text_field(uint8_t *at, int number, const texts_t *texts, int64_t index) {
    return text_length(texts, index) ? put_span(at, number, texts, index) : at;
}

static uint64_t from_word(int number, uint64_t word) {
    if (number == 15 || number == 17) return (word << 1) ^ (0 - (word >> 63));
    return word;
}

static int64_t value_size(int number, uint64_t word, const texts_t *strings, const texts_t *blobs) {
    if (number == 0) return 0;
    int kind = wire_value_kind((uint64_t)number);
    if (kind == FIXED64) return tag_size(number) + 8;
    if (kind == FIXED32) return tag_size(number) + 4;
    if (kind == VARINT) return tag_size(number) + varint_size(from_word(number, word));
    return span_size(number, text_length(number == 29 ? strings : blobs, (int64_t)word));
}

static uint8_t *put_value(
    uint8_t *at, int number, uint64_t word, const texts_t *strings, const texts_t *blobs) {
    if (number == 0) return at;
    int kind = wire_value_kind((uint64_t)number);
    if (kind == LENGTH) return put_span(at, number, number == 29 ? strings : blobs, (int64_t)word);
    at = put_tag(at, number, kind);
    if (kind == VARINT) return put_varint(at, from_word(number, word));
    int bytes = kind == FIXED64 ? 8 : 4;
    for (int i = 0; i < bytes; i++) *at++ = (uint8_t)(word >> (8 * i));
    return at;
}

typedef struct {
    const columns_t *in;
    const texts_t *strings, *blobs;
} source_t;

static int64_t attribute_size(const source_t *from, int64_t row) {
    const columns_t *in = from->in;
    return text_size(1, from->strings, in->attr_name[row]) + text_size(2, from->strings, in->attr_doc[row]) +
           value_size(in->attr_wire[row], in->attr_word[row], from->strings, from->blobs);
}

static int64_t packed_size(const uint64_t *ids, int64_t begin, int64_t end) {
    int64_t size = 0;
    for (int64_t i = begin; i < end; i++) size += varint_size(ids[i]);
    return size;
}

static uint8_t *put_packed(uint8_t *at, int number, const uint64_t *ids, int64_t begin, int64_t end) {
    if (begin == end) return at;
    at = put_tag(at, number, LENGTH);
    at = put_varint(at, (uint64_t)packed_size(ids, begin, end));
    for (int64_t i = begin; i < end; i++) at = put_varint(at, ids[i]);
    return at;
}

static int64_t io_size(const source_t *from, const int32_t *io) {
    int64_t size = 0;
    for (int i = 0; i < 3; i++) size += text_size(i + 1, from->strings, io[i]);
    return size;
}

static int io_present(const int32_t *io) { return io[0] >= 0 || io[1] >= 0 || io[2] >= 0; }

static int64_t node_size(const source_t *from, int64_t row) {
    const columns_t *in = from->in;
    int64_t size = text_size(2, from->strings, in->name[row]);
    int64_t data = packed_size(in->data_deps, in->data_ptr[row], in->data_ptr[row + 1]);
    int64_t ctrl = packed_size(in->ctrl_deps, in->ctrl_ptr[row], in->ctrl_ptr[row + 1]);
    if (in->id[row]) size += 1 + varint_size(in->id[row]);
    if (in->type[row]) size += 2;
    if (ctrl) size += span_size(4, ctrl);
    if (data) size += span_size(5, data);
    if (in->start_us[row]) size += 1 + varint_size(in->start_us[row]);
    if (in->duration_us[row]) size += 1 + varint_size(in->duration_us[row]);
    for (int half = 0; half < 2; half++) {
        const int32_t *io = in->io + 6 * row + 3 * half;
        if (io_present(io)) size += span_size(8, io_size(from, io));
    }
    for (int64_t i = in->attr_ptr[row]; i < in->attr_ptr[row + 1]; i++) {
        if (in->attr_name[i] == STORAGE_ROW)
            size += span_size(STORAGE_FIELD, text_length(from->blobs, (int64_t)in->attr_word[i]));
        else
            size += span_size(10, attribute_size(from, i));
    }
    return size ? size : 2; /* an empty Node would end the file for Python tools: write id 0 */
}

static uint8_t *put_number(uint8_t *at, int number, uint64_t value) {
    if (!value) return at;
    return put_varint(put_tag(at, number, VARINT), value);
}

static uint8_t *put_attribute(uint8_t *at, const source_t *from, int64_t row) {
    const columns_t *in = from->in;
    if (in->attr_name[row] == STORAGE_ROW)
        return put_span(at, STORAGE_FIELD, from->blobs, (int64_t)in->attr_word[row]);
    at = put_tag(at, 10, LENGTH);
    at = put_varint(at, (uint64_t)attribute_size(from, row));
    at = put_text_field(at, 1, from->strings, in->attr_name[row]);
    at = put_text_field(at, 2, from->strings, in->attr_doc[row]);
    return put_value(at, in->attr_wire[row], in->attr_word[row], from->strings, from->blobs);
}

static uint8_t *put_node(uint8_t *at, const source_t *from, int64_t row) {
    const columns_t *in = from->in;
    uint8_t *begin = at;
    at = put_number(at, 1, in->id[row]);
    at = put_text_field(at, 2, from->strings, in->name[row]);
    at = put_number(at, 3, in->type[row]);
    at = put_packed(at, 4, in->ctrl_deps, in->ctrl_ptr[row], in->ctrl_ptr[row + 1]);
    at = put_packed(at, 5, in->data_deps, in->data_ptr[row], in->data_ptr[row + 1]);
    at = put_number(at, 6, in->start_us[row]);
    at = put_number(at, 7, in->duration_us[row]);
    for (int half = 0; half < 2; half++) {
        const int32_t *io = in->io + 6 * row + 3 * half;
        if (!io_present(io)) continue;
        at = put_tag(at, 8 + half, LENGTH);
        at = put_varint(at, (uint64_t)io_size(from, io));
        for (int i = 0; i < 3; i++) at = put_text_field(at, i + 1, from->strings, io[i]);
    }
    for (int64_t i = in->attr_ptr[row]; i < in->attr_ptr[row + 1]; i++) at = put_attribute(at, from, i);
    if (at == begin) {
        *at++ = 1 << 3;
        *at++ = 0;
    }
    return at;
}

/* Bytes that wire_write needs for all nodes, or -1 - row of a node beyond protobuf's 2 GiB. */
EXPORT int64_t wire_measure(
    int64_t nodes, const columns_t *in, const texts_t *strings, const texts_t *blobs) {
    source_t from = {in, strings, blobs};
    int64_t total = 0;
    for (int64_t row = 0; row < nodes; row++) {
        int64_t size = node_size(&from, row);
        if (size > INT32_MAX) return -1 - row;
        total += varint_size((uint64_t)size) + size;
    }
    return total;
}

/* Write all nodes to `out`, which holds wire_measure bytes; return the number written. */
EXPORT int64_t wire_write(
    int64_t nodes, const columns_t *in, const texts_t *strings, const texts_t *blobs, uint8_t *out) {
    source_t from = {in, strings, blobs};
    uint8_t *at = out;
    for (int64_t row = 0; row < nodes; row++) {
        at = put_varint(at, (uint64_t)node_size(&from, row));
        at = put_node(at, &from, row);
    }
    return at - out;
}
