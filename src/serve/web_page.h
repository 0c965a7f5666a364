/* The web page at GET /. The build makes it from web_page.html, web_page.js, web_page.css and the
 * styles of src/lab. It uses the paths that every client has. */
#ifndef KVF_WEB_PAGE_H
#define KVF_WEB_PAGE_H

extern const char kvf__web_page[]; /* NUL-terminated, like the policy */
/* Its Content-Security-Policy: only inline content, and requests to this server. */
extern const char kvf__web_policy[];

#endif
