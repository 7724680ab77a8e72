/* A strict JSON cursor over bytes: finds where values end, never reads past the end of the text. */
#ifndef LAYERDAG_JSON_TEXT_H
#define LAYERDAG_JSON_TEXT_H

#include <stdint.h>
#include <string.h>

/* Kept in step with layerdag/traces/pytorch/host_trace.py. */
enum {
    JSON_OK = 0,
    JSON_CUT = 1,    /* the text ends inside a value: more may follow */
    JSON_SYNTAX = 2, /* no JSON */
    JSON_DEEP = 3,   /* nested more than JSON_DEPTH levels */
    JSON_FIELD = 4,  /* a field is absent or holds something else */
    JSON_MEMORY = 5,
    JSON_END = 6,   /* the closing bracket of the list */
    JSON_OBJECT = 7 /* an element of the list is no object */
};

#define JSON_DEPTH 100

typedef struct {
    const uint8_t *at, *end;
} text_t;

static inline void json_space(text_t *in) {
    while (in->at < in->end && (*in->at == ' ' || *in->at == '\n' || *in->at == '\r' || *in->at == '\t'))
        in->at++;
}

/* Take one character after white space. */
static inline int json_take(text_t *in, uint8_t wanted) {
    json_space(in);
    if (in->at >= in->end) return JSON_CUT;
    if (*in->at != wanted) return JSON_SYNTAX;
    in->at++;
    return JSON_OK;
}

/* Whether the next character after white space is ``wanted``; it stays where it is. */
static inline int json_sees(text_t *in, uint8_t wanted) {
    json_space(in);
    return in->at < in->end && *in->at == wanted;
}

/* In a list or object: JSON_END at ``close`` (taken), JSON_OK before the next element. */
static inline int json_next(text_t *in, uint8_t close, int *first) {
    json_space(in);
    if (in->at >= in->end) return JSON_CUT;
    if (*in->at == close) {
        in->at++;
        return JSON_END;
    }
    if (*first) {
        *first = 0;
        return JSON_OK;
    }
    return json_take(in, ',');
}

int json_string(text_t *in, text_t *content);
int json_integer(text_t *in, int64_t *value);
int json_skip(text_t *in, int depth);

static inline int json_key(text_t *in, text_t *key) {
    int status = json_string(in, key);
    return status ? status : json_take(in, ':');
}

/* Skip a value and return where it stands. */
static inline int json_span(text_t *in, text_t *value) {
    json_space(in);
    value->at = in->at;
    int status = json_skip(in, 0);
    value->end = in->at;
    return status;
}

static inline int text_is(text_t text, const char *wanted) {
    size_t length = strlen(wanted);
    return (size_t)(text.end - text.at) == length && memcmp(text.at, wanted, length) == 0;
}

#endif
