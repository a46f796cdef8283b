/* Rules of HELP texts: each must be understandable from its line alone. */
#ifndef KVL_TEST_HELP_TEXT_H
#define KVL_TEST_HELP_TEXT_H

#include <ctype.h>
#include <string.h>

#include "base/macros.h"

/* The first word of the text that speaks of another line, or what else is wrong; NULL: nothing. */
static inline const char *help_text_fault(const char *text)
{
        static const char *const others[] = {
                "it", "its", "these", "they", "them", "likewise", "that.", "same"};
        static const char *const begins[] = {"of", "and", "in", "what", "by", "times.", "since"};
        const char *at = text;

        if (strlen(text) < 20 || text[strlen(text) - 1] != '.')
                return "too short, or no sentence";
        while (*at) {
                size_t len = strcspn(at, " ,;:()");

                for (size_t i = 0; i < ARRAY_SIZE(others); i++)
                        if (len == strlen(others[i]) && strncasecmp(at, others[i], len) == 0)
                                return others[i];
                for (size_t i = 0; at == text && i < ARRAY_SIZE(begins); i++)
                        if (len == strlen(begins[i]) && strncasecmp(at, begins[i], len) == 0)
                                return begins[i];
                at += len + (at[len] != '\0');
        }
        return NULL;
}

#endif
