/* wire.c - the switch and the links of up.sh: each packet takes the time that a link of a given rate needs for it.
 *
 *   wire MICROSECONDS DEVICE...
 *
 * The k-th DEVICE belongs to the host with the MAC 02:68:62:00:00:k. A host's link carries one packet at a time in each
 * direction. A packet that arrives at A from host i starts when the link of i is free, at S = max(A, free[i]), and leaves
 * it at S + T. T is its size over the rate. After the delay it passes the link of host j in the same way, while it still
 * arrives: it starts at max(S + delay, free[j]), and does not end before S + T + delay. These times follow from those of
 * arrival alone. So a pause leaves no credit, and a late wake-up delays a packet without slowing down the next one.
 *
 * Packets that segmentation offload made larger than the MTU, and packets without a checksum yet, stay as they are: the
 * virtio header that the kernel puts before each one says so, and is given back to it. The size counts the headers of
 * each segment.
 *
 * A line on standard input is a new rate in bits per second, 0 for no limit. The answer to it, and to the start, is
 * "ready". This is process 1 of the hosts, so it ends when its standard input does, and leaves orphans to the kernel.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAXPORTS 200
#define QUEUE (16 << 20)                    /* bytes that wait for a link, at most */
#define PACKET (sizeof(struct virtio_net_hdr) + 65536 + 64)
#define NEVER INT64_MAX

struct packet {
    struct packet *next;
    int64_t time;                           /* of arrival in `in`, of its end in `out` */
    uint32_t len, link_bytes;
    uint8_t data[PACKET];                   /* the virtio header, then the frame */
};
struct link { struct packet *first, *last; int64_t free; uint32_t queued; };
static struct port { struct link in, out; } ports[MAXPORTS];
static struct pollfd polled[MAXPORTS + 1];
static struct packet *unused;               /* last in, first out: memory is that of the fullest moment */
static int64_t rate, delay;                 /* bits per second, nanoseconds */
static char **names;
static int n;
static uint64_t lost;

static int64_t nanoseconds(struct timespec t) { return t.tv_sec * 1000000000LL + t.tv_nsec; }

static int64_t clock_time(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return nanoseconds(t);
}

static int64_t now(void) { return clock_time(CLOCK_MONOTONIC); }

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t transmission(const struct packet *p) { return rate ? p->link_bytes * 8000000000LL / rate : 0; }

static struct packet *take(void)
{
    struct packet *p = unused;
    if (p != NULL) unused = p->next;
    else if ((p = malloc(sizeof *p)) == NULL) { perror("wire"); exit(1); }
    return p;
}

static void give(struct packet *p) { p->next = unused, unused = p; }

static void lose(const char *name, const char *why)
{
    if (lost++ == 0) fprintf(stderr, "wire: %s: packets lost: %s\n", name, why);
}

static void put(struct link *l, struct packet *p, const char *name)
{
    if (l->queued > QUEUE) { lose(name, "queue full"); give(p); return; }
    p->next = NULL;
    if (l->first == NULL) l->first = p; else l->last->next = p;
    l->last = p, l->queued += p->link_bytes;
}

static struct packet *pop(struct link *l)
{
    struct packet *p = l->first;
    l->first = p->next, l->queued -= p->link_bytes;
    return p;
}

static int open_port(const char *name)
{
    int one = 1, size = 64 << 20, fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
    struct sockaddr_ll a = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL),
                             .sll_ifindex = (int)if_nametoindex(name) };
    if (fd < 0 || a.sll_ifindex == 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) ||
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) ||
        setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one) ||
        setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) ||
        bind(fd, (struct sockaddr *)&a, sizeof a)) {
        fprintf(stderr, "wire: %s: %s\n", name, strerror(errno));
        exit(1);
    }
    return fd;
}

/* When a packet reached its port by the kernel's clock of day, which may be set: never in the future, at most 10 ms ago. */
static int64_t arrival(struct msghdr *m)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    struct timespec stamp;
    int64_t age = 0;
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) {
        memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
        age = clock_time(CLOCK_REALTIME) - nanoseconds(stamp);
    }
    return now() - (age > 0 && age < 10000000 ? age : 0);
}

static void receive(int k)
{
    for (int burst = 0; burst < 32; burst++) {
        struct packet *p = take();
        const struct virtio_net_hdr *h = (const void *)p->data;
        struct iovec into = { p->data, PACKET };
        char control[CMSG_SPACE(sizeof(struct timespec))];
        struct msghdr m = { .msg_iov = &into, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
        ssize_t got = recvmsg(polled[k].fd, &m, 0);
        if (got < (ssize_t)sizeof *h) { give(p); return; }
        p->time = arrival(&m), p->len = (uint32_t)got, p->link_bytes = p->len - (uint32_t)sizeof *h;
        if (h->gso_type != VIRTIO_NET_HDR_GSO_NONE && h->gso_size)
            p->link_bytes += (p->link_bytes - h->hdr_len - 1) / h->gso_size * h->hdr_len;
        put(&ports[k].in, p, names[k]);
    }
}

/* The first packet in `from.in` starts at `start`: give it its time on the links of those it is for. */
static void forward(int from, int64_t start)
{
    static const uint8_t prefix[5] = { 0x02, 0x68, 0x62, 0x00, 0x00 };
    struct packet *p = pop(&ports[from].in);
    const uint8_t *mac = p->data + sizeof(struct virtio_net_hdr);
    int64_t takes = transmission(p), end = start + takes;
    int only = memcmp(mac, prefix, sizeof prefix) == 0 ? mac[5] - 1 : -1;

    ports[from].in.free = end;
    for (int k = 0; k < n; k++) {
        if (k == from || (only >= 0 && k != only)) continue;
        struct packet *copy = p;
        struct link *l = &ports[k].out;
        if (only < 0) memcpy(copy = take(), p, sizeof *p);
        l->free = copy->time = later(later(start + delay, l->free) + takes, end + delay);
        put(l, copy, names[k]);
        if (only >= 0) return;
    }
    give(p);
}

static void send_first(int k)
{
    struct packet *p = pop(&ports[k].out);
    if (send(polled[k].fd, p->data, p->len, 0) < 0) lose(names[k], strerror(errno));
    give(p);
}

/* Do what is due, in the order of time; the result is when the next thing is. */
static int64_t advance(void)
{
    for (;;) {
        int64_t first = NEVER;
        int at = 0, starts = 0;
        for (int k = 0; k < n; k++) {
            const struct link *in = &ports[k].in, *out = &ports[k].out;
            int64_t start = in->first ? later(in->first->time, in->free) : NEVER;
            if (start < first) first = start, at = k, starts = 1;
            if (out->first && out->first->time < first) first = out->first->time, at = k, starts = 0;
        }
        if (first == NEVER || first > now()) return first;
        if (starts) forward(at, first); else send_first(at);
    }
}

static void read_rate(void)
{
    char line[64];
    ssize_t got = read(STDIN_FILENO, line, sizeof line - 1);
    if (got <= 0) exit(0);
    line[got] = 0, rate = atoll(line);
    puts("ready");
    fflush(stdout);
}

/* A packet that is due must not wait for a rank to use up its time. */
static void be_prompt(void)
{
    struct sched_param p = { .sched_priority = 1 };
    if (sched_setscheduler(0, SCHED_FIFO, &p)) setpriority(PRIO_PROCESS, 0, -20);
    prctl(PR_SET_TIMERSLACK, 1000);         /* nanoseconds */
}

int main(int argc, char **argv)
{
    n = argc - 2, names = argv + 2;
    delay = argc > 1 ? atoll(argv[1]) * 1000 : -1;
    if (n < 1 || n > MAXPORTS || delay < 0) {
        fprintf(stderr, "usage: wire MICROSECONDS DEVICE...\n");
        return 2;
    }
    for (int k = 0; k < n; k++) polled[k] = (struct pollfd){ .fd = open_port(names[k]), .events = POLLIN };
    polled[n] = (struct pollfd){ .fd = STDIN_FILENO, .events = POLLIN };
    be_prompt();
    signal(SIGCHLD, SIG_IGN);
    puts("ready");
    fflush(stdout);

    for (;;) {
        int64_t next = advance(), ns = later(next - now(), 0);
        struct timespec wait = { ns / 1000000000, ns % 1000000000 };
        if (ppoll(polled, (nfds_t)n + 1, next == NEVER ? NULL : &wait, NULL) < 0 && errno != EINTR) {
            perror("wire: poll");
            return 1;
        }
        if (polled[n].revents) read_rate();
        for (int k = 0; k < n; k++) {
            if (polled[k].revents & (POLLERR | POLLNVAL)) { fprintf(stderr, "wire: %s is gone\n", names[k]); return 1; }
            if (polled[k].revents & POLLIN) receive(k);
        }
    }
}
