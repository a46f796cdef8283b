/* The status page's script and style, embedded from web/ by web/embed.py. */
#ifndef KVL_EXPORTER_WEB_H
#define KVL_EXPORTER_WEB_H

#include <stddef.h>

extern const char web_status_js[], web_status_css[];
extern const size_t web_status_js_len, web_status_css_len;

#endif
