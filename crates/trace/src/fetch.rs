/// Has the processor fetch something while it is busy with what comes before: a trace of many
/// connections has each of them in memory by the time of its next packet, and no longer in a cache.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn fetch<T>(what: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let begin = std::ptr::from_ref(what).cast::<i8>();
    for line in 0..size_of::<T>().div_ceil(64) {
        // SAFETY: a prefetch changes nothing but caches, and ignores addresses that are not mapped.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(begin.wrapping_add(line * 64)) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn fetch<T>(_: &T) {}
