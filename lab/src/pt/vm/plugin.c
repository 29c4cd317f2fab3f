// A plugin for QEMU's emulator (TCG): writes down what the guest's processors executed between two marks.
//
// In: the guest, and what its agent (guest.c) says by an instruction that does nothing else. Out, in the folder of the argument `out`:
//   blocks.bin  blocks of instructions that ran: number u32, how many u32; of each: address u64, length u8, 15 bytes of code
//   log.bin     what ran, in order, 16 bytes each: a u64, b u32, c u16, virtual processor u8, kind u8 (enum kind below)
//   pages.bin   the pages of the kernel that ran, as they were at the end: address u64, 4,096 bytes
//   files/      what the agent sent of the guest
// All little endian. The emulator must run its processors in one thread (-icount): the order of the log is that of execution.
//
// QEMU's header of plugins is in no package of Debian; what is used of it is declared here (version 4: QEMU 9.2 and newer).
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct { uint8_t *data; unsigned len; } GByteArray;
typedef struct { char *data; unsigned len; } GArray;
GByteArray *g_byte_array_new(void);
GByteArray *g_byte_array_set_size(GByteArray *, unsigned);

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_register;
typedef struct { struct qemu_plugin_register *handle; const char *name, *feature; } qemu_plugin_reg_descriptor;
enum { NO_REGISTERS, READ_REGISTERS };
typedef void (*vcpu_simple)(plugin_id, unsigned);
typedef void (*tb_translated)(plugin_id, struct qemu_plugin_tb *);
typedef void (*executed)(unsigned, void *);
void qemu_plugin_register_vcpu_init_cb(plugin_id, vcpu_simple);
void qemu_plugin_reset(plugin_id, void (*)(plugin_id));
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, tb_translated);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, executed, int, void *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, executed, int, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *, size_t);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
GArray *qemu_plugin_get_registers(void);
int qemu_plugin_read_register(struct qemu_plugin_register *, GByteArray *);
bool qemu_plugin_read_memory_vaddr(uint64_t, GByteArray *, size_t);

__attribute__((visibility("default"))) int qemu_plugin_version = 4;

enum kind {
    BLOCK,  // a block began at address a; b: its number, c: the last of its instructions that began
    FRAME,  // the next block of this processor begins with an interrupt's frame on its stack: a: where it interrupted
    LEAVES, // the next block switches tasks: a: the thread that leaves, and its process << 32; c: it would run on
    COMES,  // and the one that comes
    BEGIN,  // the first mark: a: the thread that made it, and its process << 32
    END,
    TSC, // the time-stamp counter, as this processor has just read it: a
};

struct insn {
    uint64_t address;
    uint8_t len, code[15];
};

struct block {
    uint32_t number, insns;
    bool written, reads_tsc;
    struct insn insn[];
};

static char folder[3000];
static FILE *blocks, *records, *sent;
static bool on, done, prepares;
static plugin_id own_id;
static uint32_t number_of_blocks;
static size_t last_begun;
static GByteArray *buffer;
static struct qemu_plugin_register *rip, *rsp, *rax, *rdi, *rsi, *rdx, *rcx, *gs_base, *k_gs_base;
static struct {
    struct block *block;
    uint64_t rip;
    unsigned vcpu;
} pending;
static uint64_t switch_to, at_pid, at_tgid, at_on_rq;
// Pages of the kernel that ran, of the last 2 GiB of addresses.
static const uint64_t KERNEL = 0xffffffff80000000;
static const uint64_t KERNEL_HALF = UINT64_C(1) << 63;
static uint8_t page_ran[1 << 19];
// Processors whose last block ended by reading the time-stamp counter.
static uint64_t has_read_tsc;

static void fail(const char *what)
{
    fprintf(stderr, "plugin: %s: %s\n", what, strerror(errno));
    exit(3);
}

static FILE *make(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (!file)
        fail(path);
    return file;
}

static uint64_t reg(struct qemu_plugin_register *of)
{
    uint64_t value = 0;
    g_byte_array_set_size(buffer, 0);
    if (qemu_plugin_read_register(of, buffer) == 8)
        memcpy(&value, buffer->data, 8);
    return value;
}

// Which processor it is. The number that callbacks are given is, where one thread runs all, that of the one that translated the block;
// the kernel's memory of its own for each is at another address, in user space too.
static unsigned processor(void)
{
    static uint64_t known[64];
    uint64_t own = reg(gs_base);
    if (own < KERNEL_HALF)
        own = reg(k_gs_base);
    for (unsigned i = 0; i < 64; i++) {
        if (!known[i])
            known[i] = own;
        if (known[i] == own)
            return i;
    }
    fail("more than 64 processors");
    return 0;
}

static bool memory(uint64_t address, void *to, size_t len)
{
    g_byte_array_set_size(buffer, 0);
    if (!qemu_plugin_read_memory_vaddr(address, buffer, len) || buffer->len < len)
        return false;
    memcpy(to, buffer->data, len);
    return true;
}

static void record(enum kind kind, unsigned vcpu, uint64_t a, uint32_t b, uint16_t c)
{
    uint8_t out[16];
    memcpy(out, &a, 8);
    memcpy(out + 8, &b, 4);
    memcpy(out + 12, &c, 2);
    out[14] = vcpu;
    out[15] = kind;
    fwrite(out, sizeof out, 1, records);
}

// The block that began last has ended: one thread runs all processors.
static void flush(void)
{
    struct block *block = pending.block;
    if (!block)
        return;
    record(BLOCK, pending.vcpu, pending.rip, block->number, last_begun);
    pending.block = NULL;
    if (block->reads_tsc && last_begun == block->insns - 1)
        has_read_tsc |= UINT64_C(1) << pending.vcpu;
    if (block->written)
        return;
    block->written = true;
    fwrite(&block->number, 4, 1, blocks);
    fwrite(&block->insns, 4, 1, blocks);
    fwrite(block->insn, sizeof(struct insn), block->insns, blocks);
    for (unsigned i = 0; i < block->insns; i++) {
        uint64_t at = block->insn[i].address;
        if (at >= KERNEL) {
            page_ran[(at - KERNEL) >> 12] = 1;
            page_ran[(at + block->insn[i].len - 1 - KERNEL) >> 12] = 1;
        }
    }
}

static uint64_t task(uint64_t at)
{
    uint32_t pid = 0, tgid = 0;
    memory(at + at_pid, &pid, 4);
    memory(at + at_tgid, &tgid, 4);
    return pid | (uint64_t)tgid << 32;
}

static void begins(unsigned vcpu, void *number)
{
    (void)vcpu;
    last_begun = (size_t)number;
}

static void block_begins(unsigned vcpu, void *of)
{
    if (!on)
        return;
    flush();
    vcpu = processor();
    if (has_read_tsc >> vcpu & 1) {
        has_read_tsc &= ~(UINT64_C(1) << vcpu);
        record(TSC, vcpu, (reg(rax) & UINT32_MAX) | reg(rdx) << 32, 0, 0);
    }
    struct block *block = of;
    // The same block may lie at several addresses.
    uint64_t at = reg(rip);
    pending.block = block;
    pending.rip = at;
    pending.vcpu = vcpu;
    if (at < KERNEL)
        return;
    uint64_t stack[3];
    if (memory(reg(rsp), stack, sizeof stack)) {
        // What an interrupt pushes: where it was, and the code segment of Linux; some push an error first.
        if (stack[1] == 0x10 || stack[1] == 0x33)
            record(FRAME, vcpu, stack[0], 0, 0);
        else if (stack[2] == 0x10 || stack[2] == 0x33)
            record(FRAME, vcpu, stack[1], 0, 1);
    }
    if (at == switch_to) {
        uint64_t leaves = reg(rdi), comes = reg(rsi);
        uint32_t on_rq = 0;
        memory(leaves + at_on_rq, &on_rq, 4);
        record(LEAVES, vcpu, task(leaves), 0, on_rq);
        record(COMES, vcpu, task(comes), 0, 0);
    }
}

static void end(unsigned vcpu)
{
    flush();
    record(END, vcpu, 0, 0, 0);
    FILE *pages = make("pages.bin");
    static uint8_t page[4096];
    for (uint64_t i = 0; i < sizeof page_ran; i++) {
        uint64_t at = KERNEL + (i << 12);
        if (page_ran[i] && memory(at, page, sizeof page)) {
            fwrite(&at, 8, 1, pages);
            fwrite(page, sizeof page, 1, pages);
        }
    }
    fclose(pages);
    fclose(blocks);
    fclose(records);
    done = true;
}

static const uint8_t CALL[8] = { 0x0f, 0x1f, 0x84, 0x00, 0x9b, 0x51, 0x11, 0x7a };
static void prepared(plugin_id id);

// The agent's instruction: a number in rdi, what it is about in rsi, rdx and rcx.
static void called(unsigned vcpu, void *of)
{
    (void)of;
    if (reg(rdi) == 5 || reg(rdi) == 6)
        vcpu = processor();
    uint64_t what = reg(rdi), a = reg(rsi), b = reg(rdx), c = reg(rcx);
    char name[64], path[128];
    static uint8_t data[1 << 16];
    switch (what) {
    case 1:
        if (!memory(a, name, sizeof name) || memchr(name, '/', sizeof name) || !memchr(name, 0, sizeof name))
            fail("the agent's name of a file");
        snprintf(path, sizeof path, "files/%s", name);
        sent = make(path);
        break;
    case 2:
        if (!sent || b > sizeof data || !memory(a, data, b))
            fail("the agent's data");
        fwrite(data, 1, b, sent);
        break;
    case 3:
        if (sent)
            fclose(sent);
        sent = NULL;
        break;
    case 4:
        switch_to = a;
        at_pid = (uint32_t)b;
        at_tgid = b >> 32;
        at_on_rq = c;
        break;
    case 5:
        if (!done) {
            record(BEGIN, vcpu, a | b << 32, 0, 0);
            record(TSC, vcpu, c, 0, 0);
            on = true;
        }
        break;
    case 6:
        if (on) {
            on = false;
            end(vcpu);
        }
        break;
    case 7:
        if (!prepares) {
            prepares = true;
            qemu_plugin_reset(own_id, prepared);
        }
        break;
    }
}

// What a guest does before it is prepared is only searched for the agent's instruction: that is several times faster.
static void translated_before(plugin_id id, struct qemu_plugin_tb *tb)
{
    (void)id;
    size_t n = qemu_plugin_tb_n_insns(tb);
    for (size_t i = 0; i < n; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        uint8_t code[sizeof CALL];
        if (qemu_plugin_insn_size(insn) == sizeof CALL && qemu_plugin_insn_data(insn, code, sizeof code) == sizeof code &&
            !memcmp(code, CALL, sizeof CALL))
            qemu_plugin_register_vcpu_insn_exec_cb(insn, called, READ_REGISTERS, NULL);
    }
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
    (void)id;
    size_t n = qemu_plugin_tb_n_insns(tb);
    struct block *block = calloc(1, sizeof *block + n * sizeof(struct insn));
    if (!block)
        fail("memory");
    block->number = number_of_blocks++;
    block->insns = n;
    for (size_t i = 0; i < n; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        struct insn *of = &block->insn[i];
        of->address = qemu_plugin_insn_vaddr(insn);
        of->len = qemu_plugin_insn_size(insn);
        qemu_plugin_insn_data(insn, of->code, of->len > 15 ? 15 : of->len);
        qemu_plugin_register_vcpu_insn_exec_cb(insn, begins, NO_REGISTERS, (void *)i);
        // RDTSC, RDTSCP: under -icount they end a block.
        block->reads_tsc = (of->len == 2 && of->code[0] == 0x0f && of->code[1] == 0x31) ||
                           (of->len == 3 && of->code[0] == 0x0f && of->code[1] == 0x01 && of->code[2] == 0xf9);
        if (of->len == sizeof CALL && !memcmp(of->code, CALL, sizeof CALL))
            qemu_plugin_register_vcpu_insn_exec_cb(insn, called, READ_REGISTERS, NULL);
    }
    qemu_plugin_register_vcpu_tb_exec_cb(tb, block_begins, READ_REGISTERS, block);
}

// The emulator has forgotten all blocks: they are translated again, and every instruction is followed.
static void prepared(plugin_id id)
{
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
}

static void vcpu_is_there(plugin_id id, unsigned vcpu)
{
    (void)id;
    (void)vcpu;
    GArray *all = qemu_plugin_get_registers();
    qemu_plugin_reg_descriptor *of = (void *)all->data;
    for (unsigned i = 0; i < all->len; i++) {
        struct { const char *name; struct qemu_plugin_register **to; } wanted[] = {
            { "rip", &rip }, { "rsp", &rsp }, { "rax", &rax }, { "rdi", &rdi }, { "rsi", &rsi }, { "rdx", &rdx }, { "rcx", &rcx },
            { "gs_base", &gs_base }, { "k_gs_base", &k_gs_base },
        };
        for (unsigned w = 0; w < sizeof wanted / sizeof *wanted; w++)
            if (!strcmp(of[i].name, wanted[w].name))
                *wanted[w].to = of[i].handle;
    }
    if (!rip || !rsp || !rax || !rdi || !rsi || !rdx || !rcx || !gs_base || !k_gs_base)
        fail("the processor's registers");
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++)
        if (!strncmp(argv[i], "out=", 4))
            snprintf(folder, sizeof folder, "%s", argv[i] + 4);
    if (!*folder) {
        fprintf(stderr, "plugin: out=FOLDER is missing\n");
        return -1;
    }
    char files[4096];
    snprintf(files, sizeof files, "%s/files", folder);
    mkdir(files, 0755);
    blocks = make("blocks.bin");
    records = make("log.bin");
    buffer = g_byte_array_new();
    qemu_plugin_register_vcpu_init_cb(id, vcpu_is_there);
    own_id = id;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated_before);
    return 0;
}
