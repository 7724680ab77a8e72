/* Primitives of the protobuf encoding, bounds-checked: no read goes past the end of its message. */
#ifndef LAYERDAG_WIRE_CURSOR_H
#define LAYERDAG_WIRE_CURSOR_H

#include "wire.h"

typedef struct {
    const uint8_t *at, *end;
} cursor_t;

static inline int read_varint(cursor_t *in, uint64_t *value) {
    uint64_t result = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (in->at >= in->end) return CUT_OFF;
        uint8_t byte = *in->at++;
        result |= (uint64_t)(byte & 0x7F) << shift; /* shift 63: higher bits fall off, as defined */
        if (byte < 0x80) {
            *value = result;
            return OK;
        }
    }
    return LONG_VARINT;
}

static inline int read_fixed(cursor_t *in, int bytes, uint64_t *value) {
    if (in->end - in->at < bytes) return CUT_OFF;
    *value = 0;
    for (int i = 0; i < bytes; i++) *value |= (uint64_t)in->at[i] << (8 * i);
    in->at += bytes;
    return OK;
}

static inline int read_span(cursor_t *in, cursor_t *inner) {
    uint64_t length;
    int status = read_varint(in, &length);
    if (status) return status;
    if (length > (uint64_t)(in->end - in->at) || length > INT32_MAX) return CUT_OFF;
    inner->at = in->at;
    inner->end = in->at += length;
    return OK;
}

static inline int read_tag(cursor_t *in, uint64_t *number, int *kind) {
    uint64_t word;
    int status = read_varint(in, &word);
    *number = word >> 3;
    *kind = (int)(word & 7);
    return status;
}

/* UTF-8 without overlong forms, surrogates, or values beyond U+10FFFF (RFC 3629). */
static inline int is_utf8(cursor_t text) {
    while (text.at < text.end) {
        uint8_t lead = *text.at++;
        if (lead < 0x80) continue;
        int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
        if (lead < 0xC2 || lead > 0xF4 || text.end - text.at < more) return 0;
        uint8_t second = *text.at;
        if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
            (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F))
            return 0;
        while (more--)
            if ((*text.at++ & 0xC0) != 0x80) return 0;
    }
    return 1;
}

/* Skip a field of any kind that is not known; groups are no part of proto3. */
static inline int skip_field(cursor_t *in, int kind) {
    uint64_t ignored;
    cursor_t inner;
    if (kind == VARINT) return read_varint(in, &ignored);
    if (kind == LENGTH) return read_span(in, &inner);
    if (kind == FIXED64 || kind == FIXED32) return read_fixed(in, kind == FIXED64 ? 8 : 4, &ignored);
    return BAD_FIELD;
}

static inline int skip_number(cursor_t *in, int kind) {
    uint64_t ignored;
    if (kind == VARINT) return read_varint(in, &ignored);
    return read_fixed(in, kind == FIXED64 ? 8 : 4, &ignored);
}

#endif
