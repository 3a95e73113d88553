//! The protocols between programs on two processors, in every order in which a weakly ordered
//! processor may execute them (`docs/internals/memory-order.md`).

use std::array;
use std::panic::{UnwindSafe, catch_unwind};
use std::process::Command;

use libbpf_rs::ObjectBuilder;
use loom::model;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Relaxed};
use loom::sync::atomic::{AtomicU32, fence};
use loom::thread::spawn;
use pillion_tests::isolated;

/// Models `order_accesses()`, and each side of an exchange (`bpf/bundler/lock.h`).
fn order_accesses(is_ordered: bool) {
    if is_ordered {
        fence(AcqRel);
    }
}

/// The message with which a model fails.
fn fault(model: impl Fn() + UnwindSafe) -> Option<&'static str> {
    let panic = catch_unwind(model).err()?;
    panic.downcast_ref().copied()
}

/// The start of a series of retransmissions, its `first_tsval`, and the flag of a segment. The last
/// two are also a model of any other published word and its data. `orders` has two of the writer,
/// then two of the reader.
fn publish(orders: [bool; 4]) {
    model(move || {
        let shared = Arc::new([0; 3].map(AtomicU32::new));
        let writer = shared.clone();
        spawn(move || {
            let [flag, first_tsval, start] = &*writer;
            start.store(1, Relaxed);
            order_accesses(orders[0]);
            first_tsval.store(1, Relaxed);
            order_accesses(orders[1]);
            flag.store(1, Relaxed);
        });
        let [flag, first_tsval, start] = &*shared;
        let is_retransmitted = flag.load(Relaxed);
        order_accesses(orders[2]);
        let tsval = first_tsval.load(Relaxed);
        order_accesses(orders[3]);
        assert!(tsval >= is_retransmitted, "stale data");
        assert!(start.load(Relaxed) >= tsval, "stale data");
    });
}

#[test]
fn published_data_is_stale_if_any_order_is_missing() {
    publish([true; 4]);
    for missing in 0..4 {
        let orders = array::from_fn(|at| at != missing);
        assert_eq!(fault(|| publish(orders)), Some("stale data"), "{missing}");
    }
}

/// A closed connection that user space copies three times (`crates/bpf/src/closed.rs`): of the
/// second copy only `busy`. Without the second of the `orders`, these are two copies, because a copy
/// may load its words in any order.
fn copy_closed_flow(orders: [bool; 2]) {
    model(move || {
        let shared = Arc::new([0; 3].map(AtomicU32::new));
        let writer = shared.clone();
        spawn(move || {
            let [busy, number, record] = &*writer;
            busy.store(1, Relaxed);
            order_accesses(true);
            number.store(1, Relaxed);
            record.store(1, Relaxed);
            order_accesses(true);
            busy.store(0, Relaxed);
        });
        let [busy, number, record] = &*shared;
        let copy = || [number, record].map(|word| word.load(Relaxed));
        let first = copy();
        order_accesses(orders[0]);
        let is_busy = busy.load(Relaxed) > 0;
        order_accesses(orders[1]);
        let last = copy();
        assert!(
            is_busy || first != last || first[0] == first[1],
            "mixed copy"
        );
    });
}

#[test]
fn closed_flow_is_mixed_without_three_ordered_reads() {
    copy_closed_flow([true, true]);
    assert_eq!(
        fault(|| copy_closed_flow([true, false])),
        Some("mixed copy")
    );
    assert_eq!(
        fault(|| copy_closed_flow([false, true])),
        Some("mixed copy")
    );
}

#[test]
fn every_file_that_orders_accesses_is_documented() {
    let page = include_str!("../../docs/internals/memory-order.md");
    let mut grep = Command::new("grep");
    grep.args(["-rlE", "(STORE_RELEASE|LOAD_ACQUIRE|order_accesses)\\("]);
    let output = grep.arg("../bpf/bundler").output().expect("grep");
    let paths = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(paths.contains("record.h"));
    for name in paths.lines().filter_map(|it| it.rsplit('/').next()) {
        assert!(page.contains(&format!("`{name}`")), "{name} is missing");
    }
}

#[test]
fn programs_for_weakly_ordered_processors_load() {
    isolated(|| {
        let path = concat!(env!("OUT_DIR"), "/weakly_ordered.bpf.o");
        let mut object = ObjectBuilder::default().open_file(path).expect("programs");
        for mut program in object.progs_mut() {
            program.set_flags(libbpf_sys::BPF_F_ANY_ALIGNMENT); // as the loader
            // Iterators order nothing, and a hardened kernel refuses some.
            let section = program.section().to_string_lossy();
            program.set_autoload(!section.starts_with("iter/"));
        }
        object.load().expect("the kernel accepts the programs");
    });
}
