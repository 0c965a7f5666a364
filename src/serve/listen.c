/* The listening socket of the server, for a numeric IPv4 or IPv6 address. */
#include "listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_loopback(const struct sockaddr *address)
{
    const struct sockaddr_in *four = (const void *)address;
    const struct sockaddr_in6 *six = (const void *)address;
    if (address->sa_family == AF_INET) return ntohl(four->sin_addr.s_addr) >> 24 == 127;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

static int bound_socket(const struct addrinfo *where)
{
    const int on = 1;
    int fd = socket(where->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (!bind(fd, where->ai_addr, where->ai_addrlen) && !listen(fd, SOMAXCONN)) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

kvf_status kvf__listen_fail(kvf_ctx *ctx, const kvf_serve_options *o, const char *why)
{
    return kvf__fail(ctx, KVF_EIO, "cannot listen on %s, port %lld: %s", o->host,
                     (long long)o->port, why);
}

kvf_status kvf__listen(kvf_ctx *ctx, const kvf_serve_options *o, kvf__listener *out)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *where = NULL;
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } bound;
    socklen_t n = sizeof bound;
    char number[16];
    snprintf(number, sizeof number, "%d", (int)o->port);
    if (getaddrinfo(strcmp(o->host, "localhost") ? o->host : "127.0.0.1", number, &hints, &where))
        return kvf__fail(ctx, KVF_EUSAGE, "host \"%s\": want a numeric address", o->host);
    out->loopback = is_loopback(where->ai_addr);
    out->fd = bound_socket(where);
    freeaddrinfo(where);
    if (out->fd < 0 || getsockname(out->fd, &bound.any, &n))
        return kvf__listen_fail(ctx, o, strerror(errno));
    out->port = ntohs(bound.any.sa_family == AF_INET ? bound.four.sin_port : bound.six.sin6_port);
    return KVF_OK;
}
