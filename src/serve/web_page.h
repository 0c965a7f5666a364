/* The page for people at GET /, made when the library is built: web_page.html with web_page.js and
 * the styles of src/lab and web_page.css inside. It uses the paths that every client has. */
#ifndef KVF_WEB_PAGE_H
#define KVF_WEB_PAGE_H

extern const char kvf__web_page[]; /* NUL-terminated, as is the policy */
/* Its Content-Security-Policy: nothing but what is inside, and requests to this server. */
extern const char kvf__web_policy[];

#endif
