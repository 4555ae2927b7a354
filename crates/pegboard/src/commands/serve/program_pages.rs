//! Unmaps the pages of the program that its start has used.
//!
//! The kernel maps 64 KiB around each address of the program that is used. The start uses a little of everything, so that
//! more than half of a program of 36 MB is resident afterwards, most of it unused since. This frees no memory, since these
//! pages are those of the file, which programs share and the kernel takes back when it needs to; but the resident size then
//! says what a gateway uses. What is used again is mapped again, without a disk access while the file is cached.

use std::convert::Infallible;
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

use nix::sys::mman::{MmapAdvise, madvise};
use tokio::time;

/// Time after the start; clients that wait for the gateway make their first calls meanwhile.
const SETTLED: Duration = Duration::from_secs(1);

/// Unmaps the pages once the start is over. Never completes.
pub(super) async fn unmap_after_start() -> Infallible {
    time::sleep(SETTLED).await;
    match unmap() {
        Ok(n_bytes) => tracing::debug!(n_bytes, "Unmapped the pages of the program."),
        Err(error) => tracing::debug!(%error, "The pages of the program stay mapped."),
    }
    std::future::pending().await
}

/// Unmaps the resident pages of code and constants; returns the size of their mappings.
fn unmap() -> io::Result<usize> {
    let program = std::fs::read_link("/proc/self/exe")?;
    let mut n_bytes = 0;
    for range in clean_mappings(&std::fs::read_to_string("/proc/self/maps")?, &program) {
        let start = std::ptr::without_provenance_mut::<c_void>(range.start);
        let Some(start) = NonNull::new(start) else { continue };
        #[expect(unsafe_code, reason = "the interface is unsafe, because it may discard changes to memory")]
        // SAFETY: these mappings of a file cannot be written, and were not changed while the program was linked:
        // code needs no relocation, and relocated constants are elsewhere. The kernel reads the same bytes again.
        unsafe {
            madvise(start, range.len(), MmapAdvise::MADV_DONTNEED)?;
        }
        n_bytes += range.len();
    }
    Ok(n_bytes)
}

/// Returns the mappings of a program that are as in its file: its code, and the constants at its beginning. Relocated
/// constants, which are not writable either, come later in the file.
fn clean_mappings(maps: &str, program: &Path) -> Vec<Range<usize>> {
    let clean = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (addresses, access, offset) = (fields.next()?, fields.next()?, fields.next()?);
        let path = &line[line.find('/')?..];
        let is_clean = access == "r-xp" || (access == "r--p" && offset.bytes().all(|digit| digit == b'0'));
        let (start, end) = addresses.split_once('-')?;
        let address = |digits| usize::from_str_radix(digits, 16).ok();
        (is_clean && Path::new(path) == program).then_some(address(start)?..address(end)?)
    };
    maps.lines().filter_map(clean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55f0c0000000-55f0c0600000 r--p 00000000 fe:00 123   /usr/bin/pegboard
55f0c0600000-55f0c2000000 r-xp 005ff000 fe:00 123   /usr/bin/pegboard
55f0c2000000-55f0c2090000 r--p 01ffe000 fe:00 123   /usr/bin/pegboard
55f0c2090000-55f0c2099000 rw-p 0208d000 fe:00 123   /usr/bin/pegboard
55f0c2099000-55f0c20a0000 rw-p 00000000 00:00 0
55f0d0000000-55f0d0001000 r-xp 00000000 fe:00 789   /opt/my tools/pegboard (deleted)
7f0000000000-7f0000028000 r-xp 00026000 fe:00 456   /usr/lib/libc.so.6
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0     [stack]
";

    #[test]
    fn only_code_and_constants_without_relocations_are_unmapped() {
        let found = clean_mappings(MAPS, Path::new("/usr/bin/pegboard"));
        assert_eq!(found, [0x55f0_c000_0000..0x55f0_c060_0000, 0x55f0_c060_0000..0x55f0_c200_0000]);
        let found = clean_mappings(MAPS, Path::new("/opt/my tools/pegboard (deleted)"));
        assert_eq!(found.first(), Some(&(0x55f0_d000_0000..0x55f0_d000_1000)));
        assert_eq!(found.len(), 1);
        assert!(clean_mappings(MAPS, Path::new("/usr/bin/other")).is_empty());
        assert!(clean_mappings("unexpected\n\n1-2 r-xp", Path::new("/usr/bin/pegboard")).is_empty());
    }

    #[test]
    fn a_program_goes_on_without_its_pages() {
        let n_bytes = unmap().unwrap();
        assert!(n_bytes > 1 << 20, "{n_bytes}");
        assert_eq!(format!("{:?}", "still here"), "\"still here\"");
        assert_eq!(unmap().unwrap(), n_bytes);
    }
}
