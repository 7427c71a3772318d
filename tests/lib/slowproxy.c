/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slow link in one process: a TCP proxy that adds a round trip and a rate.
 *
 *	slowproxy --listen 127.0.0.1:PORT --to 127.0.0.1:PORT
 *		[--mbit N] [--rtt MS] [--stats FILE] [--portfile FILE]
 *
 * The model is one link to the server, shared by all connections. Bytes towards
 * the client occupy it one after the other at --mbit (megabits a second, may
 * have a fraction; 0: unlimited) and arrive half a round trip later; bytes
 * towards the server are only delayed. A new connection costs one round trip
 * before its first byte, as a handshake would. The queue before the link holds
 * 20 ms: beyond that nothing is read from the servers, so that connections
 * share the rate and the kernel's own flow control does the rest. There is no
 * loss and no slow start.
 *
 * --stats FILE is replaced once a second while something happens, at SIGUSR1
 * and at the end: {"connections", "peak_connections", "requests", "up", "down"},
 * bytes in both directions; requests are those of plain HTTP/1.1. SIGUSR2 sets
 * all of them to zero. SIGTERM ends it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/io.h"
#include "base/list.h"

#define PIECE (16 * 1024)
#define QUEUE_NS 20000000ull /* of the link */
#define HELD_MAX (8 * 1024 * 1024) /* of one direction of one connection */
#define NS_PER_MS 1000000ull

struct piece {
	struct list node;
	uint64_t due_ns;
	size_t len, off;
	uint8_t data[PIECE];
};

/* One direction of a connection. */
struct way {
	int from, to; /* borrowed from the connection */
	bool down; /* from the server */
	bool readable, writable; /* as far as we know: edges */
	bool ended; /* end of file read; goes out behind the last piece */
	bool closed; /* ... and was passed on */
	size_t held;
	struct list pieces; /* by due_ns */
	unsigned matched; /* of "\r\n\r\n", for counting requests */
};

struct conn {
	struct list node;
	int client, server;
	uint64_t open_ns; /* no byte goes through before */
	struct way up, down;
	bool dead;
};

struct stats {
	uint64_t connections, peak_connections, requests, up, down;
};

static struct proxy {
	struct sockaddr_in listen, to;
	double bytes_per_ns; /* 0: unlimited */
	uint64_t half_rtt_ns, link_free_ns;
	const char *stats_file, *port_file;
	int listenfd, epfd, timerfd, signalfd;
	struct list conns;
	uint64_t n_conns;
	struct stats stats, written;
	uint64_t next_write_ns;
} px;

static int die(const char *what)
{
	perror(what);
	exit(1);
}

/* ---- one direction ---- */

/* When @len bytes from the server have gone over the link. */
static uint64_t occupy_link(size_t len, uint64_t now)
{
	if (px.bytes_per_ns <= 0)
		return now;
	if (px.link_free_ns < now)
		px.link_free_ns = now;
	px.link_free_ns += (uint64_t)((double)len / px.bytes_per_ns);
	return px.link_free_ns;
}

static bool link_is_full(uint64_t now)
{
	return px.link_free_ns > now + QUEUE_NS;
}

static void count_requests(struct way *w, const uint8_t *p, size_t len)
{
	static const char end[] = "\r\n\r\n";

	for (size_t i = 0; i < len; i++) {
		if (p[i] != (uint8_t)end[w->matched])
			w->matched = p[i] == '\r';
		else if (++w->matched == sizeof(end) - 1) {
			px.stats.requests++;
			w->matched = 0;
		}
	}
}

/* One piece from the socket into the queue. false: not now. */
static bool take_piece(struct conn *c, struct way *w, uint64_t now)
{
	struct piece *k;
	ssize_t n;

	if (!w->readable || w->ended || w->held >= HELD_MAX ||
	    (w->down && link_is_full(now)))
		return false;
	k = malloc(sizeof(*k));
	if (!k)
		die("malloc");
	n = read(w->from, k->data, PIECE);
	if (n <= 0) {
		free(k);
		if (n < 0 && errno == EINTR)
			return true;
		if (n < 0 && errno == EAGAIN)
			w->readable = false;
		else if (n < 0)
			c->dead = true;
		else
			w->ended = true;
		return false;
	}
	k->len = (size_t)n;
	k->off = 0;
	k->due_ns = w->down ? occupy_link(k->len, now) : now;
	if (k->due_ns < c->open_ns)
		k->due_ns = c->open_ns;
	k->due_ns += px.half_rtt_ns;
	list_push(&w->pieces, &k->node);
	w->held += k->len;
	if (!w->down)
		count_requests(w, k->data, k->len);
	return true;
}

static void give_pieces(struct conn *c, struct way *w, uint64_t now)
{
	while (w->writable && !list_empty(&w->pieces)) {
		struct piece *k = list_first(&w->pieces, struct piece, node);
		ssize_t n;

		if (k->due_ns > now)
			return;
		n = send(w->to, k->data + k->off, k->len - k->off,
			 MSG_NOSIGNAL);
		if (n < 0) {
			if (errno == EAGAIN)
				w->writable = false;
			else if (errno != EINTR)
				c->dead = true;
			if (errno != EINTR)
				return;
			continue;
		}
		*(w->down ? &px.stats.down : &px.stats.up) += (uint64_t)n;
		k->off += (size_t)n;
		w->held -= (size_t)n;
		if (k->off == k->len) {
			list_remove(&k->node);
			free(k);
		}
	}
	if (w->ended && !w->closed && list_empty(&w->pieces)) {
		(void)shutdown(w->to, SHUT_WR);
		w->closed = true;
	}
}

static void way_init(struct way *w, int from, int to, bool down)
{
	w->from = from;
	w->to = to;
	w->down = down;
	list_init(&w->pieces);
}

static void way_release(struct way *w)
{
	while (!list_empty(&w->pieces)) {
		struct piece *k = list_first(&w->pieces, struct piece, node);

		list_remove(&k->node);
		free(k);
	}
}

/* ---- connections ---- */

/* The lowest bit of an event's pointer says which end it is about. */
static void watch(int fd, struct conn *c, unsigned which)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP |
					   EPOLLET,
				 .data.u64 = (uintptr_t)c | which };
	int one = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (epoll_ctl(px.epfd, EPOLL_CTL_ADD, fd, &e) < 0)
		die("epoll_ctl");
}

static void conn_new(int client)
{
	struct conn *c = calloc(1, sizeof(*c));
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (!c || fd < 0)
		die("connection");
	if (connect(fd, (struct sockaddr *)&px.to, sizeof(px.to)) < 0 &&
	    errno != EINPROGRESS) {
		(void)close(fd);
		(void)close(client);
		free(c);
		return;
	}
	c->client = client;
	c->server = fd;
	c->open_ns = now_ns() + 2 * px.half_rtt_ns;
	way_init(&c->up, client, fd, false);
	way_init(&c->down, fd, client, true);
	watch(client, c, 0);
	watch(fd, c, 1);
	list_push(&px.conns, &c->node);
	px.stats.connections++;
	if (++px.n_conns > px.stats.peak_connections)
		px.stats.peak_connections = px.n_conns;
}

static void conn_free(struct conn *c)
{
	list_remove(&c->node);
	way_release(&c->up);
	way_release(&c->down);
	(void)close(c->client);
	(void)close(c->server);
	free(c);
	px.n_conns--;
}

static void accept_all(void)
{
	int fd;

	while ((fd = accept4(px.listenfd, NULL, NULL,
			     SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
		conn_new(fd);
}

static void note_event(uint64_t who, uint32_t events)
{
	struct conn *c = (struct conn *)(uintptr_t)(who & ~1ull);
	struct way *reads = who & 1 ? &c->down : &c->up;
	struct way *writes = who & 1 ? &c->up : &c->down;

	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		reads->readable = true;
	if (events & (EPOLLOUT | EPOLLERR))
		writes->writable = true;
}

/* A piece of each connection in turn, until none has one: a fair link. */
static void move_all(void)
{
	struct list *p, *n;
	uint64_t now;
	bool more = true;

	while (more) {
		more = false;
		now = now_ns();
		list_each_safe (p, n, &px.conns) {
			struct conn *c = list_entry(p, struct conn, node);

			more |= take_piece(c, &c->up, now);
			more |= take_piece(c, &c->down, now);
			give_pieces(c, &c->up, now);
			give_pieces(c, &c->down, now);
			if (c->dead || (c->up.closed && c->down.closed))
				conn_free(c);
		}
		/* The next round begins with another one. */
		if (!list_empty(&px.conns)) {
			p = px.conns.next;
			list_remove(p);
			list_push(&px.conns, p);
		}
	}
}

static uint64_t way_next(const struct way *w, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	if (w->writable && !list_empty(&w->pieces))
		next = list_first(&w->pieces, struct piece, node)->due_ns;
	/* Readable, but the link was full. */
	if (w->down && w->readable && !w->ended && w->held < HELD_MAX &&
	    link_is_full(now) && px.link_free_ns - QUEUE_NS < next)
		next = px.link_free_ns - QUEUE_NS;
	return next;
}

static void set_timer(void)
{
	uint64_t now = now_ns(), next = UINT64_MAX;
	struct itimerspec its = { 0 };
	struct list *p;

	list_each (p, &px.conns) {
		const struct conn *c = list_entry(p, struct conn, node);
		uint64_t a = way_next(&c->up, now), b = way_next(&c->down, now);

		next = a < next ? a : next;
		next = b < next ? b : next;
	}
	if (next != UINT64_MAX) {
		its.it_value.tv_sec = (time_t)(next / 1000000000u);
		its.it_value.tv_nsec = (long)(next % 1000000000u);
	}
	(void)timerfd_settime(px.timerfd, TFD_TIMER_ABSTIME, &its, NULL);
}

/* ---- figures ---- */

static void write_stats(bool always)
{
	owned(buf) struct buf b = { 0 };
	const struct stats *s = &px.stats;

	if (!px.stats_file ||
	    (!always && (now_ns() < px.next_write_ns ||
			 memcmp(s, &px.written, sizeof(*s)) == 0)))
		return;
	(void)buf_addf(&b,
		       "{\"connections\":%" PRIu64
		       ",\"peak_connections\":%" PRIu64 ",\"requests\":%" PRIu64
		       ",\"up\":%" PRIu64 ",\"down\":%" PRIu64 "}\n",
		       s->connections, s->peak_connections, s->requests, s->up,
		       s->down);
	if (b.failed ||
	    write_file_atomic(AT_FDCWD, px.stats_file, b.p, b.len, 0644) < 0)
		(void)fprintf(stderr, "slowproxy: cannot write '%s'\n",
			      px.stats_file);
	px.written = *s;
	px.next_write_ns = now_ns() + 1000 * NS_PER_MS;
}

/* false: the end. */
static bool take_signals(void)
{
	struct signalfd_siginfo si;
	bool go_on = true;

	while (read(px.signalfd, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGUSR2) {
			memset(&px.stats, 0, sizeof(px.stats));
			px.stats.peak_connections = px.n_conns;
		} else if (si.ssi_signo != SIGUSR1) {
			go_on = false;
		}
		write_stats(true);
	}
	return go_on;
}

/* ---- start ---- */

static bool parse_addr(const char *s, struct sockaddr_in *ret)
{
	const char *colon = strrchr(s, ':');
	unsigned long port;
	char host[64], *end;

	if (!colon || (size_t)(colon - s) >= sizeof(host))
		return false;
	memcpy(host, s, (size_t)(colon - s));
	host[colon - s] = '\0';
	port = strtoul(colon + 1, &end, 10);
	if (!colon[1] || *end || port > 65535)
		return false;
	ret->sin_family = AF_INET;
	ret->sin_port = htons((uint16_t)port);
	return inet_pton(AF_INET, host, &ret->sin_addr) == 1;
}

static bool parse_number(const char *s, double *ret)
{
	char *end;

	*ret = strtod(s, &end);
	return *s && !*end && *ret >= 0 && *ret < 1e6;
}

static void usage(void)
{
	(void)fprintf(
		stderr,
		"usage: slowproxy --listen ADDR:PORT --to ADDR:PORT "
		"[--mbit N] [--rtt MS] [--stats FILE] [--portfile FILE]\n");
	exit(2);
}

static void parse_args(int argc, char **argv)
{
	static const struct option options[] = {
		{ "listen", required_argument, NULL, 'l' },
		{ "to", required_argument, NULL, 't' },
		{ "mbit", required_argument, NULL, 'm' },
		{ "rtt", required_argument, NULL, 'r' },
		{ "stats", required_argument, NULL, 's' },
		{ "portfile", required_argument, NULL, 'p' },
		{ 0 },
	};
	bool good = true;
	double n = 0;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 'l') {
			good &= parse_addr(optarg, &px.listen);
		} else if (o == 't') {
			good &= parse_addr(optarg, &px.to);
		} else if (o == 'm') {
			good &= parse_number(optarg, &n);
			px.bytes_per_ns = n * 1e6 / 8 / 1e9;
		} else if (o == 'r') {
			good &= parse_number(optarg, &n);
			px.half_rtt_ns = (uint64_t)(n * NS_PER_MS / 2);
		} else if (o == 's') {
			px.stats_file = optarg;
		} else if (o == 'p') {
			px.port_file = optarg;
		} else {
			good = false;
		}
	}
	if (!good || optind != argc || !px.listen.sin_family || !px.to.sin_port)
		usage();
}

static void listen_there(void)
{
	socklen_t n = sizeof(px.listen);
	char port[16];
	int one = 1;

	px.listenfd =
		socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	(void)setsockopt(px.listenfd, SOL_SOCKET, SO_REUSEADDR, &one,
			 sizeof(one));
	if (px.listenfd < 0 ||
	    bind(px.listenfd, (struct sockaddr *)&px.listen,
		 sizeof(px.listen)) < 0 ||
	    listen(px.listenfd, 256) < 0 ||
	    getsockname(px.listenfd, (struct sockaddr *)&px.listen, &n) < 0)
		die("listen");
	(void)snprintf(port, sizeof(port), "%u\n", ntohs(px.listen.sin_port));
	if (px.port_file && write_file_atomic(AT_FDCWD, px.port_file, port,
					      strlen(port), 0644) < 0)
		die("portfile");
}

static void watch_own(int fd)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = 0 };

	if (fd < 0 || epoll_ctl(px.epfd, EPOLL_CTL_ADD, fd, &e) < 0)
		die("epoll");
}

int main(int argc, char **argv)
{
	struct epoll_event ev[64];
	sigset_t set;
	uint64_t junk;

	parse_args(argc, argv);
	list_init(&px.conns);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGUSR1);
	(void)sigaddset(&set, SIGUSR2);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	px.epfd = epoll_create1(EPOLL_CLOEXEC);
	px.timerfd =
		timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	px.signalfd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	listen_there();
	watch_own(px.listenfd);
	watch_own(px.timerfd);
	watch_own(px.signalfd);
	while (take_signals()) {
		int n = epoll_wait(px.epfd, ev, ARRAY_LEN(ev), 1000);

		for (int i = 0; i < n; i++)
			if (ev[i].data.u64)
				note_event(ev[i].data.u64, ev[i].events);
		(void)!read(px.timerfd, &junk, sizeof(junk));
		accept_all();
		move_all();
		set_timer();
		write_stats(false);
	}
	return 0;
}
