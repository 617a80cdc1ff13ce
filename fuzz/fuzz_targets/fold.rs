#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| parlor_testkit::fuzz::fold::check(data));
