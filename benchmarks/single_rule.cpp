// kafka-3.7 for partitions with three replicas, by hand: the bound for one rule.
//
// What the leader knows of its followers, the periodic check, ISR writes in the background, the high watermark; changes
// of the ISR and both timelines are written as our kernel writes them. It does without everything that the replay has
// beyond one rule: no verdicts (whose fault a shrink is), no scores, no silences, removals, checks seen in the log, or
// brokers that may not join, no other number of replicas. It takes rows of kind APPEND (4) and FETCH (5).

#include <algorithm>
#include <cstdint>

namespace {

using i64 = std::int64_t;

constexpr i64 NEVER = i64{1} << 62;
constexpr i64 APPEND = 4;
constexpr int FOLLOWERS = 2;
constexpr i64 SHRINK = 0, EXPAND = 1;
enum Stage : i64 { DONE, ARRIVED, READ };

struct Follower {
    i64 log_end, caught_up_ms, last_fetch_ms, last_leader_end, in_isr, in_maximal_isr;
    i64 shown_end, shown_caught_up_ms, shown_in_isr;
    i64 stage, due_us, handled_us, processed_us, offset, error, leader_end;
    i64 id;
};

struct Columns {
    const i64 *time_us, *kind, *replica_id, *offset, *code, *leader_end, *handled_us, *processed_us;
};

struct Term {
    i64 start_us, end_us, start_offset, high_watermark, lag_time_ms, min_isr, period_us, phase_us, write_us;
};

// Timelines go round in a buffer, as ours is emptied and filled again; changes are all kept.
struct Out {
    i64 *replica, *partition, *change;
    i64 mask, most_changes;
    i64 replicas, partitions, changes;
};

struct Set {
    const Term &term;
    Out &out;
    Follower followers[FOLLOWERS];
    i64 log_end, high_watermark, isr, isr_size, pending_isr;
    i64 commit_us, check_us, check_due_us;
    i64 shown_end, shown_high_watermark, shown_isr, shown_at_us, shown_then;
    i64 due_us;  // of the next timer

    void look_for_due() {
        due_us = std::min(check_us, commit_us);
        for (const auto &f : followers) due_us = std::min(due_us, f.due_us);
    }

    void show(int p, i64 now_us) {
        auto &f = followers[p];
        const bool behind = f.log_end != log_end;
        if (f.log_end == f.shown_end && f.in_isr == f.shown_in_isr &&
            !(behind && f.caught_up_ms != f.shown_caught_up_ms))
            return;
        f.shown_end = f.log_end;
        f.shown_in_isr = f.in_isr;
        f.shown_caught_up_ms = f.caught_up_ms;
        i64 *row = out.replica + 8 * (out.replicas++ & out.mask);
        row[0] = 1;  // runs: bit 0 alone
        row[1] = p + 1;
        row[2] = now_us;
        row[3] = f.log_end;
        if (shown_at_us != now_us) shown_at_us = now_us, shown_then = 0;
        row[4] = shown_then++;  // of several rows of an instant the last one holds
        row[5] = log_end - f.log_end;
        row[6] = f.caught_up_ms;
        row[7] = f.in_isr;
    }

    void show_leader(i64 now_us) {
        if (log_end == shown_end && high_watermark == shown_high_watermark && isr == shown_isr) return;
        shown_end = log_end;
        shown_high_watermark = high_watermark;
        shown_isr = isr;
        i64 *row = out.partition + 5 * (out.partitions++ & out.mask);
        row[0] = 1;
        row[1] = now_us;
        row[2] = log_end;
        row[3] = high_watermark;
        row[4] = isr;
    }

    void show_all(i64 now_us) {
        for (int p = 0; p < FOLLOWERS; p++) show(p, now_us);
        show_leader(now_us);
    }

    void write_change(int p, i64 now_us, i64 kind, i64 isr_after) {
        const auto &f = followers[p];
        if (out.changes < out.most_changes) {
            i64 *row = out.change + 12 * out.changes;
            const i64 values[12] = {0, now_us, kind, p + 1, isr, isr_after, high_watermark, log_end, f.log_end,
                                    f.caught_up_ms, now_us / 1000 - f.caught_up_ms, 0};
            std::copy(values, values + 12, row);
        }
        out.changes++;
    }

    void advance_high_watermark(i64 now_ms) {
        if (isr_size < std::min<i64>(term.min_isr, FOLLOWERS + 1)) return;
        i64 candidate = log_end;
        for (const auto &f : followers)
            if (f.log_end < candidate &&
                (f.in_maximal_isr || (f.log_end >= 0 && now_ms - f.caught_up_ms <= term.lag_time_ms)))
                candidate = f.log_end;
        high_watermark = std::max(high_watermark, candidate);
    }

    void install(i64 members) {
        isr = pending_isr = members;
        commit_us = NEVER;
        isr_size = members & 1;
        for (int p = 0; p < FOLLOWERS; p++) {
            const i64 member = members >> (p + 1) & 1;
            isr_size += member;
            followers[p].in_isr = followers[p].in_maximal_isr = member;
        }
    }

    void commit(i64 now_us) {
        install(pending_isr);
        advance_high_watermark(now_us / 1000);
    }

    void write_isr(i64 members, i64 now_us) {
        pending_isr = members;
        commit_us = now_us + term.write_us;
        if (term.write_us == 0) commit(now_us);
    }

    void schedule_check(i64 after_us) {
        check_us = check_due_us =
            term.phase_us + ((after_us - term.phase_us + term.period_us) / term.period_us) * term.period_us;
    }

    void check(i64 now_us) {
        if (commit_us != NEVER) return;
        i64 members = isr;
        for (int p = 0; p < FOLLOWERS; p++) {
            const auto &f = followers[p];
            if (f.in_isr && f.log_end != log_end && now_us / 1000 - f.caught_up_ms > term.lag_time_ms)
                members &= ~(i64{2} << p);
        }
        if (members == isr) return;
        for (int p = 0; p < FOLLOWERS; p++)
            if ((isr & ~members) >> (p + 1) & 1) write_change(p, now_us, SHRINK, members);
        write_isr(members, now_us);
        show_all(now_us);
    }

    void append(i64 end, i64 now_us) {
        if (end <= log_end) return;
        log_end = end;
        advance_high_watermark(now_us / 1000);
        show_all(now_us);
    }

    void read(int p, i64 now_us) {
        auto &f = followers[p];
        append(f.leader_end, now_us);
        if (f.leader_end < 0) f.leader_end = log_end;
        f.stage = READ;
        f.due_us = f.processed_us;
    }

    void record(int p, i64 now_us) {
        auto &f = followers[p];
        f.stage = DONE;
        f.due_us = NEVER;
        if (f.error != 0) return;
        const i64 before = f.log_end, handled_ms = f.handled_us / 1000;
        if (f.offset >= f.leader_end)
            f.caught_up_ms = std::max(f.caught_up_ms, handled_ms);
        else if (f.offset >= f.last_leader_end)
            f.caught_up_ms = std::max(f.caught_up_ms, f.last_fetch_ms);
        f.log_end = f.offset;
        f.last_fetch_ms = handled_ms;
        f.last_leader_end = std::max(f.last_leader_end, f.leader_end);
        if (!f.in_isr && commit_us == NEVER && f.log_end >= std::max(high_watermark, term.start_offset)) {
            const i64 members = isr | (i64{2} << p);
            write_change(p, now_us, EXPAND, members);
            f.in_maximal_isr = 1;
            write_isr(members, now_us);
        }
        if (f.log_end != before) advance_high_watermark(handled_ms);
        show(p, now_us);
        show_leader(now_us);
    }

    // At equal times: the answer to an ISR write, a check, then reads.
    void fire(i64 until_us) {
        while (due_us <= until_us) {
            const i64 now_us = due_us;
            if (commit_us == now_us) {
                commit(now_us);
                show_all(now_us);
            } else if (check_us == now_us) {
                check(now_us);
                schedule_check(std::max(now_us, check_due_us));
            } else {
                const int p = followers[0].due_us == now_us ? 0 : 1;
                followers[p].stage == ARRIVED ? read(p, now_us) : record(p, now_us);
            }
            look_for_due();
        }
    }

    void begin() {
        log_end = term.start_offset;
        high_watermark = term.high_watermark;
        shown_end = shown_high_watermark = shown_isr = shown_at_us = -2;
        for (auto &f : followers) {
            f.log_end = f.last_leader_end = -1;
            f.caught_up_ms = term.start_us / 1000;
            f.last_fetch_ms = 0;
            f.shown_end = f.shown_caught_up_ms = f.shown_in_isr = -2;
            f.stage = DONE;
            f.due_us = NEVER;
        }
        install((i64{1} << (FOLLOWERS + 1)) - 1);
        advance_high_watermark(term.start_us / 1000);
        show_all(term.start_us);
        schedule_check(term.start_us - 1);
        look_for_due();
    }

    void fetch(const Columns &rows, i64 i, i64 now_us) {
        const int p = rows.replica_id[i] == followers[0].id ? 0 : 1;
        auto &f = followers[p];
        if (f.stage == ARRIVED) read(p, now_us);
        if (f.stage == READ) record(p, now_us);
        if (rows.code[i] == 0) append(rows.offset[i], now_us);
        f.stage = ARRIVED;
        f.due_us = f.handled_us = rows.handled_us[i];
        f.processed_us = rows.processed_us[i];
        f.offset = rows.offset[i];
        f.error = rows.code[i];
        f.leader_end = rows.leader_end[i];
        look_for_due();
    }
};

}  // namespace

// Columns of one partition's rows, ids of its two followers, its term; `filled` counts rows of the timelines and changes.
extern "C" void replay(const i64 *const *columns, i64 rows, const i64 *ids, const i64 *term, i64 *replica,
                       i64 *partition, i64 ring, i64 *change, i64 most_changes, i64 *filled) {
    const Columns c{columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], columns[6], columns[7]};
    const Term t{term[0], term[1], term[2], term[3], term[4], term[5], term[6], term[7], term[8]};
    Out out{replica, partition, change, ring - 1, most_changes, filled[0], filled[1], filled[2]};
    Set set{t, out};
    for (int p = 0; p < FOLLOWERS; p++) set.followers[p].id = ids[p];
    set.begin();
    for (i64 i = 0; i < rows && c.time_us[i] <= t.end_us; i++) {
        const i64 now_us = c.time_us[i];
        set.fire(now_us);
        if (c.kind[i] == APPEND)
            set.append(c.offset[i], now_us);
        else
            set.fetch(c, i, now_us);
    }
    set.fire(t.end_us);
    filled[0] = out.replicas;
    filled[1] = out.partitions;
    filled[2] = out.changes;
}
