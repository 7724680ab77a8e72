/* Where JSON values end; see json_text.h. */
#include "json_text.h"

/* Content of a string without its quotes; escapes stay as they are, and are checked for form. */
int json_string(text_t *in, text_t *content) {
    int status = json_take(in, '"');
    if (status) return status;
    content->at = in->at;
    for (; in->at < in->end; in->at++) {
        uint8_t byte = *in->at;
        if (byte == '"') {
            content->end = in->at++;
            return JSON_OK;
        }
        if (byte < 0x20) return JSON_SYNTAX;
        if (byte != '\\') continue;
        if (++in->at >= in->end) return JSON_CUT;
        if (!memchr("\"\\/bfnrtu", *in->at, 9)) return JSON_SYNTAX;
    }
    return JSON_CUT;
}

static inline int is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

/* An integer; one that does not fit is cut to the largest or smallest that does. */
int json_integer(text_t *in, int64_t *value) {
    json_space(in);
    text_t digits = *in;
    int negative = digits.at < digits.end && *digits.at == '-';
    digits.at += negative;
    if (digits.at >= digits.end) return JSON_CUT;
    if (!is_digit(*digits.at)) return JSON_FIELD;
    uint64_t size = 0;
    for (; digits.at < digits.end && is_digit(*digits.at); digits.at++) {
        uint64_t digit = *digits.at - (uint64_t)'0';
        size = size > ((uint64_t)INT64_MAX - digit) / 10 ? (uint64_t)INT64_MAX : size * 10 + digit;
    }
    if (digits.at >= digits.end) return JSON_CUT;
    if (*digits.at == '.' || *digits.at == 'e' || *digits.at == 'E') return JSON_FIELD;
    *value = negative ? -(int64_t)size : (int64_t)size;
    in->at = digits.at;
    return JSON_OK;
}

static int skip_digits(text_t *in) {
    const uint8_t *begin = in->at;
    while (in->at < in->end && is_digit(*in->at)) in->at++;
    if (in->at >= in->end) return JSON_CUT;
    return in->at > begin ? JSON_OK : JSON_SYNTAX;
}

static int skip_number(text_t *in) {
    int status = skip_digits(in);
    if (!status && *in->at == '.') {
        in->at++;
        status = skip_digits(in);
    }
    if (!status && (*in->at == 'e' || *in->at == 'E')) {
        in->at++;
        if (in->at < in->end && (*in->at == '+' || *in->at == '-')) in->at++;
        status = skip_digits(in);
    }
    return status;
}

/* The words of JSON, and those that writers use for numbers that JSON lacks. */
static int skip_word(text_t *in) {
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "nan", "inf"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i]), left = (size_t)(in->end - in->at);
        if (memcmp(in->at, words[i], length < left ? length : left) != 0) continue;
        if (left <= length) return JSON_CUT;
        in->at += length;
        return JSON_OK;
    }
    return JSON_SYNTAX;
}

static int skip_list(text_t *in, int depth) {
    int first = 1, status;
    in->at++;
    while ((status = json_next(in, ']', &first)) == JSON_OK)
        if ((status = json_skip(in, depth))) return status;
    return status == JSON_END ? JSON_OK : status;
}

static int skip_object(text_t *in, int depth) {
    int first = 1, status;
    text_t key;
    in->at++;
    while ((status = json_next(in, '}', &first)) == JSON_OK) {
        if ((status = json_key(in, &key))) return status;
        if ((status = json_skip(in, depth))) return status;
    }
    return status == JSON_END ? JSON_OK : status;
}

int json_skip(text_t *in, int depth) {
    text_t content;
    json_space(in);
    if (in->at >= in->end) return JSON_CUT;
    if (depth >= JSON_DEPTH) return JSON_DEEP;
    switch (*in->at) {
    case '"': return json_string(in, &content);
    case '[': return skip_list(in, depth + 1);
    case '{': return skip_object(in, depth + 1);
    case '-':
        if (++in->at >= in->end) return JSON_CUT;
        return is_digit(*in->at) ? skip_number(in) : skip_word(in);
    default: return is_digit(*in->at) ? skip_number(in) : skip_word(in);
    }
}
