/* A libnvidia-ml.so.1 without a GPU: it answers from a scenario file, so that the real binding can be tried.
 *
 * The file (named by HYPERSCOUT_NVML_STUB) is read at every nvmlInit; tests/support/nvml.py writes it. A line is
 * "<gpu or *> <key> <values>". The layout of arguments is that of NVML's API reference. Built with -DOLD it lacks
 * what a driver of 2020 lacked, with -DANCIENT it cannot even start, with -DNO_PCI it tells no addresses.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS 16
#define LINKS 36
#define MIGS 8
#define NOT_SUPPORTED 3
#define INVALID_ARGUMENT 2
#define NOT_FOUND 6
#define LOST 15
#define VERSION_MISMATCH 25

typedef int ret;

struct gpu {
    char uuid[96], name[96], bus[32], cluster[33], remote[LINKS][32];
    unsigned links, version, speed, remote_type, numa;
    unsigned state, status, clique, mask, summary, fabric_version;
    unsigned mig_mode, migs, lost, vanish, odd;
    unsigned link_state[LINKS];
    unsigned long long replay[LINKS], recovery[LINKS], crc[LINKS], ber[LINKS];
    unsigned fields, is_mig;
    struct gpu *parent;
};

static struct gpu gpus[GPUS], migs[GPUS][MIGS];
static unsigned count, init_code, initialised, known_fabric = 3, over;
static char driver[80] = "580.95.05";
static unsigned long calls, field_calls;

unsigned long hyperscout_stub_calls(void) { return calls; }
unsigned long hyperscout_stub_field_calls(void) { return field_calls; }
void hyperscout_stub_reset(void) { calls = field_calls = 0; }

static void set(struct gpu *g, const char *key, const char *text)
{
    unsigned a = 0;
    unsigned long long b = 0;
    char word[32] = "";
    sscanf(text, "%u %llu", &a, &b);
    if (!strcmp(key, "uuid")) snprintf(g->uuid, sizeof g->uuid, "%s", text);
    else if (!strcmp(key, "name")) snprintf(g->name, sizeof g->name, "%s", text);
    else if (!strcmp(key, "bus")) snprintf(g->bus, sizeof g->bus, "%s", text);
    else if (!strcmp(key, "cluster")) snprintf(g->cluster, sizeof g->cluster, "%s", text);
    else if (!strcmp(key, "links")) g->links = a;
    else if (!strcmp(key, "version")) g->version = a;
    else if (!strcmp(key, "speed")) g->speed = a;
    else if (!strcmp(key, "remote_type")) g->remote_type = a;
    else if (!strcmp(key, "remote") && sscanf(text, "%u %31s", &a, word) == 2 && a < LINKS)
        memcpy(g->remote[a], word, sizeof word);
    else if (!strcmp(key, "numa")) g->numa = a;
    else if (!strcmp(key, "state")) g->state = a;
    else if (!strcmp(key, "status")) g->status = a;
    else if (!strcmp(key, "clique")) g->clique = a;
    else if (!strcmp(key, "mask")) g->mask = a;
    else if (!strcmp(key, "summary")) g->summary = a;
    else if (!strcmp(key, "fabric")) g->fabric_version = a;
    else if (!strcmp(key, "mig_mode")) g->mig_mode = a;
    else if (!strcmp(key, "migs")) g->migs = a < MIGS ? a : MIGS;
    else if (!strcmp(key, "lost")) g->lost = a;
    else if (!strcmp(key, "vanish")) g->vanish = a;
    else if (!strcmp(key, "odd")) g->odd = a;
    else if (!strcmp(key, "fields")) g->fields = a;
    else if (!strcmp(key, "link") && a < LINKS) g->link_state[a] = (unsigned)b;
    else if (!strcmp(key, "replay") && a < LINKS) g->replay[a] = b;
    else if (!strcmp(key, "recovery") && a < LINKS) g->recovery[a] = b;
    else if (!strcmp(key, "crc") && a < LINKS) g->crc[a] = b;
    else if (!strcmp(key, "ber") && a < LINKS) g->ber[a] = b;
}

static ret load(void)
{
    const char *path = getenv("HYPERSCOUT_NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512], scope[16], key[32];
    int used;
    count = init_code = over = 0;
    known_fabric = 3;
    memset(gpus, 0, sizeof gpus);
    if (!file) return 9; /* driver not loaded */
    for (unsigned i = 0; i < GPUS; i++) {
        gpus[i].fields = 1;
        for (unsigned j = 0; j < LINKS; j++) gpus[i].link_state[j] = 1;
    }
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%15s %31s %n", scope, key, &used) != 2) continue;
        if (!strcmp(scope, "-")) {
            if (!strcmp(key, "count")) count = (unsigned)atoi(line + used);
            if (!strcmp(key, "init")) init_code = (unsigned)atoi(line + used);
            if (!strcmp(key, "over")) over = (unsigned)atoi(line + used);
            if (!strcmp(key, "known_fabric")) known_fabric = (unsigned)atoi(line + used);
            if (!strcmp(key, "driver")) snprintf(driver, sizeof driver, "%s", line + used);
        } else if (!strcmp(scope, "*")) {
            for (unsigned i = 0; i < GPUS; i++) set(&gpus[i], key, line + used);
        } else if (atoi(scope) < GPUS) {
            set(&gpus[atoi(scope)], key, line + used);
        }
    }
    fclose(file);
    return (ret)init_code;
}

/* What every call on a GPU begins with. `vanish` n: it is lost from its n-th call on. `over` n: from the n-th call
 * on any of them, the driver in the kernel is another one. */
static ret enter(struct gpu *g)
{
    calls++;
    if (!initialised) return 1;
    if (over == 1) return 18;
    if (over) over--;
    struct gpu *real = g->parent ? g->parent : g;
    if (real->vanish && --real->vanish == 0) real->lost = 1;
    return real->lost ? LOST : 0;
}
#define ENTER(g) do { ret code = enter(g); if (code) return code; } while (0)

#ifndef ANCIENT
ret nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    calls++;
    if (initialised) return initialised++, 0;
    ret code = load();
    initialised = code == 0;
    return code;
}
#endif
ret nvmlInit_v2(void) { return 0; }
ret nvmlShutdown(void) { calls++; return initialised ? (initialised--, 0) : 1; }
const char *nvmlErrorString(ret code) { return code == 1234 ? "A new kind of trouble" : "Unknown Error"; }

ret nvmlSystemGetDriverVersion(char *text, unsigned length)
{
    calls++;
    snprintf(text, length, "%s", driver);
    return 0;
}

ret nvmlDeviceGetCount_v2(unsigned *found)
{
    calls++;
    if (!initialised) return 1;
    *found = count;
    return 0;
}

ret nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **device)
{
    if (index >= count) return INVALID_ARGUMENT;
    ENTER(&gpus[index]);
    *device = &gpus[index];
    return 0;
}

ret nvmlDeviceGetUUID(struct gpu *g, char *text, unsigned length)
{
    ENTER(g);
    snprintf(text, length, "%s", g->uuid);
    if (g->odd) text[0] = (char)0xff;
    return 0;
}

ret nvmlDeviceGetName(struct gpu *g, char *text, unsigned length)
{
    ENTER(g);
    snprintf(text, length, "%s", g->name);
    return 0;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; };

#ifndef NO_PCI
ret nvmlDeviceGetPciInfo_v3(struct gpu *g, struct pci *info)
{
    ENTER(g);
    memset(info, 0, sizeof *info);
    snprintf(info->text, sizeof info->text, "%s", g->bus);
    return 0;
}
#endif

ret nvmlDeviceGetNvLinkState(struct gpu *g, unsigned link, unsigned *active)
{
    ENTER(g);
    if (link >= g->links) return g->links ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *active = g->link_state[link] == 1 || g->link_state[link] == 2;
    return 0;
}

ret nvmlDeviceGetNvLinkVersion(struct gpu *g, unsigned link, unsigned *version)
{
    ENTER(g);
    if (link >= g->links) return INVALID_ARGUMENT;
    *version = g->version;
    return 0;
}

ret nvmlDeviceGetNvLinkErrorCounter(struct gpu *g, unsigned link, unsigned which, unsigned long long *value)
{
    ENTER(g);
    if (link >= g->links) return INVALID_ARGUMENT;
    *value = which == 0 ? g->replay[link] : which == 1 ? g->recovery[link] : which == 2 ? g->crc[link] : 0;
    return 0;
}

ret nvmlDeviceGetNvLinkRemotePciInfo_v2(struct gpu *g, unsigned link, struct pci *info)
{
    ENTER(g);
    if (link >= g->links) return INVALID_ARGUMENT;
    if (!g->remote[link][0]) return NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    snprintf(info->text, sizeof info->text, "%s", g->remote[link]);
    return 0;
}

ret nvmlDeviceGetTopologyCommonAncestor(struct gpu *a, struct gpu *b, unsigned *level)
{
    ENTER(a);
    ENTER(b);
    *level = a->numa == b->numa ? 40 : 50;
    return 0;
}

#ifndef OLD
ret nvmlDeviceGetNvLinkRemoteDeviceType(struct gpu *g, unsigned link, unsigned *type)
{
    ENTER(g);
    if (link >= g->links) return INVALID_ARGUMENT;
    *type = g->remote_type;
    return 0;
}

struct field {
    uint32_t id, scope;
    int64_t time, latency;
    unsigned type;
    ret code;
    union { double d; unsigned ui; unsigned long ul; unsigned long long ull; } value;
};

ret nvmlDeviceGetFieldValues(struct gpu *g, int how_many, struct field *values)
{
    ENTER(g);
    field_calls++;
    if (!g->fields) return NOT_SUPPORTED;
    for (int i = 0; i < how_many; i++) {
        struct field *f = &values[i];
        unsigned link = f->scope;
        f->type = 1;
        f->code = 0;
        if (f->id == 91) { f->value.ui = g->links; continue; }
        if (link >= g->links) { f->code = INVALID_ARGUMENT; continue; }
        switch (f->id) {
        case 164: f->value.ui = g->link_state[link] ? g->speed : 0; break;
        case 165: f->value.ui = g->link_state[link]; break;
        case 166: f->value.ui = g->version; break;
        case 161: case 162: case 163: case 208: case 215: case 220: {
            int new_kind = f->id >= 200;
            if (new_kind != (g->version >= 5)) { f->code = NOT_SUPPORTED; break; }
            f->type = 3;
            f->value.ull = f->id == 161 ? g->replay[link]
                : f->id == 162 || f->id == 215 ? g->recovery[link]
                : f->id == 220 ? g->ber[link] : g->crc[link];
            break;
        }
        default: f->code = NOT_SUPPORTED;
        }
    }
    return 0;
}

ret nvmlDeviceGetMigMode(struct gpu *g, unsigned *now, unsigned *later)
{
    ENTER(g);
    if (g->mig_mode > 1) return NOT_SUPPORTED;
    *now = *later = g->mig_mode;
    return 0;
}

ret nvmlDeviceGetMaxMigDeviceCount(struct gpu *g, unsigned *most) { ENTER(g); *most = 7; return 0; }

ret nvmlDeviceGetMigDeviceHandleByIndex(struct gpu *g, unsigned index, struct gpu **device)
{
    ENTER(g);
    if (index == 0 || index > g->migs) return NOT_FOUND; /* the first place is empty */
    struct gpu *mig = &migs[g - gpus][index];
    memset(mig, 0, sizeof *mig);
    snprintf(mig->uuid, sizeof mig->uuid, "MIG-%u-%.80s", index, g->uuid);
    snprintf(mig->name, sizeof mig->name, "%.80s MIG 3g.40gb", g->name);
    mig->is_mig = index;
    mig->parent = g;
    *device = mig;
    return 0;
}

ret nvmlDeviceGetGpuInstanceId(struct gpu *g, unsigned *id) { ENTER(g); *id = g->is_mig; return 0; }
ret nvmlDeviceGetComputeInstanceId(struct gpu *g, unsigned *id) { ENTER(g); *id = 0; return 0; }
#endif

struct fabric { unsigned char cluster[16]; ret status; uint32_t clique; unsigned state; };
struct fabric_v { unsigned version; struct fabric info; uint32_t mask; uint8_t summary; };

static void fill(struct gpu *g, struct fabric *info)
{
    for (int i = 0; i < 16; i++) {
        unsigned byte = 0;
        if (strlen(g->cluster) == 32) sscanf(g->cluster + 2 * i, "%2x", &byte);
        info->cluster[i] = (unsigned char)byte;
    }
    info->status = (ret)g->status;
    info->clique = g->clique;
    info->state = g->state;
}

#ifndef OLD
ret nvmlDeviceGetGpuFabricInfo(struct gpu *g, struct fabric *info)
{
    ENTER(g);
    if (!g->fabric_version) return NOT_SUPPORTED;
    fill(g, info);
    return 0;
}
#endif

#ifndef OLD
ret nvmlDeviceGetGpuFabricInfoV(struct gpu *g, struct fabric_v *info)
{
    ENTER(g);
    unsigned version = info->version >> 24;
    unsigned size = info->version & 0xffffff;
    if (!g->fabric_version) return NOT_SUPPORTED;
    if (version > known_fabric || size != (version == 3 ? 40 : 36)) return VERSION_MISMATCH;
    fill(g, &info->info);
    info->mask = g->mask;
    if (version == 3) info->summary = (uint8_t)g->summary;
    return 0;
}
#endif
