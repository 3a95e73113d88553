#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pillion_fuzz::flows(data));
