/* wire.c - a switch whose packets take a fixed time, for up.sh on kernels without
 * sch_netem.
 *
 *   wire MICROSECONDS DEVICE...
 *
 * Reads every packet that a host sends into its DEVICE (the k-th belongs to the
 * host with the MAC 02:68:62:00:00:k), keeps it for the given time and then
 * writes it to the device of the host it is for, or to all others if it is for
 * no single host. Packets that segmentation offload made larger than the MTU,
 * and packets without a checksum yet, stay as they are: the virtio header that
 * the kernel puts before each one says so, and is given back to it.
 * One thread and one queue do: the delay is the same for all, so order holds.
 * It says "ready" when packets may come. It is process 1 of the hosts, so it ends
 * when its standard input does, and leaves orphans to the kernel.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAXPORTS 200
#define SLOTS 16384                         /* packets on the way, at most */
#define PACKET (sizeof(struct virtio_net_hdr) + 65536 + 64)

struct packet { int64_t due; int from; uint32_t len; uint8_t *data; };
static struct packet ring[SLOTS];
static uint64_t head, tail;                 /* next to write, next to send */

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
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
        setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) ||
        bind(fd, (struct sockaddr *)&a, sizeof a)) {
        fprintf(stderr, "wire: %s: %s\n", name, strerror(errno));
        exit(1);
    }
    return fd;
}

int main(int argc, char **argv)
{
    static const uint8_t prefix[5] = { 0x02, 0x68, 0x62, 0x00, 0x00 };
    int n = argc - 2, k;
    int64_t delay = argc > 1 ? atoll(argv[1]) * 1000 : 0;
    struct pollfd p[MAXPORTS + 1];
    uint64_t lost = 0;

    if (n < 1 || n > MAXPORTS || delay <= 0) {
        fprintf(stderr, "usage: wire MICROSECONDS DEVICE...\n");
        return 2;
    }
    for (k = 0; k < n; k++) p[k] = (struct pollfd){ .fd = open_port(argv[k + 2]), .events = POLLIN };
    p[n] = (struct pollfd){ .fd = STDIN_FILENO };     /* events: none, its end is always told */
    prctl(PR_SET_TIMERSLACK, 1000);         /* wake up within a microsecond */
    signal(SIGCHLD, SIG_IGN);
    puts("ready");
    fflush(stdout);

    for (;;) {
        struct timespec wait = { 0, 0 }, *w = NULL;
        if (tail != head) {
            int64_t ns = ring[tail % SLOTS].due - now();
            if (ns < 0) ns = 0;
            wait.tv_sec = ns / 1000000000, wait.tv_nsec = ns % 1000000000;
            w = &wait;
        }
        if (ppoll(p, (nfds_t)n + 1, w, NULL) < 0 && errno != EINTR) { perror("wire: poll"); return 1; }
        if (p[n].revents) return 0;

        for (k = 0; k < n; k++) {
            if (p[k].revents & (POLLERR | POLLNVAL)) { fprintf(stderr, "wire: %s is gone\n", argv[k + 2]); return 1; }
            for (int burst = 0; (p[k].revents & POLLIN) && burst < 32; burst++) {
                struct packet *q = &ring[head % SLOTS];
                if (q->data == NULL && (q->data = malloc(PACKET)) == NULL) { perror("wire"); return 1; }
                ssize_t got = recv(p[k].fd, q->data, PACKET, 0);
                if (got < 0) break;
                if (head - tail == SLOTS - 1) {     /* full: this one is lost */
                    if (lost++ == 0) fprintf(stderr, "wire: queue full, packets lost\n");
                    continue;
                }
                q->due = now() + delay, q->from = k, q->len = (uint32_t)got;
                head++;
            }
        }
        for (int64_t t = now(); tail != head && ring[tail % SLOTS].due <= t; tail++) {
            struct packet *q = &ring[tail % SLOTS];
            const uint8_t *mac = q->data + sizeof(struct virtio_net_hdr);
            int to = memcmp(mac, prefix, sizeof prefix) == 0 ? mac[5] - 1 : -1;
            for (k = 0; k < n; k++) {
                if (k == q->from || (to >= 0 && k != to)) continue;
                if (send(p[k].fd, q->data, q->len, 0) < 0 && lost++ == 0)
                    fprintf(stderr, "wire: %s: %s\n", argv[k + 2], strerror(errno));
            }
        }
    }
}
