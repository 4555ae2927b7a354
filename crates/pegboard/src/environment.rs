//! The environment of this process, which its child processes cannot read.
//!
//! On Linux a process may read the initial environment of every process of its user under `/proc`, and removing a
//! variable does not change what it reads. So the variables are copied at the start, and the values of all that no
//! library needs are overwritten where the system placed them. Then the process is made non-dumpable: its memory and
//! its environment belong to root, even if another user runs it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::OnceLock;

/// Variables as they were at the start of the process.
static VARIABLES: OnceLock<BTreeMap<OsString, OsString>> = OnceLock::new();

/// Copies the environment and hides it from other processes. Must be called before a thread is started; afterwards
/// the environment is read here only.
pub(crate) fn seal() {
    variables();
    platform::seal();
}

/// Makes the environment and the memory of this process unreadable for other processes of its user.
pub(crate) fn forbid_inspection() {
    platform::forbid_inspection();
}

/// Returns a variable of this process, if it is valid Unicode.
pub(crate) fn var(name: &str) -> Option<String> {
    var_os(name)?.into_string().ok()
}

/// Returns a variable of this process.
pub(crate) fn var_os(name: &str) -> Option<OsString> {
    variables().get(OsStr::new(name)).cloned()
}

/// Returns all variables of this process.
pub(crate) fn vars_os() -> impl Iterator<Item = (OsString, OsString)> {
    variables().iter().map(|(name, value)| (name.clone(), value.clone()))
}

#[expect(clippy::disallowed_methods, reason = "the only place that reads it")]
fn variables() -> &'static BTreeMap<OsString, OsString> {
    VARIABLES.get_or_init(|| std::env::vars_os().collect())
}

#[cfg(target_os = "linux")]
mod platform {
    use std::fs::OpenOptions;
    use std::io;
    use std::os::unix::fs::FileExt;

    use pegboard::providers::process::is_inherited_name;
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};

    /// Maximum size of an environment that is read; the system allows a quarter of the stack.
    const MAX_BYTES: u64 = 64 * 1024 * 1024;
    /// Variables that libraries of this process read, besides those that every program inherits.
    const USED: [&str; 11] = [
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "COLORTERM",
        "COLUMNS",
        "DBUS_SESSION_BUS_ADDRESS",
        "LINES",
        "NO_COLOR",
        "RUST_BACKTRACE",
        "RUST_LIB_BACKTRACE",
        "RUST_MIN_STACK",
        "XDG_RUNTIME_DIR",
    ];
    /// Prefixes of such variables: the exporter of traces and the C library.
    const USED_PREFIXES: [&str; 4] = ["OTEL_", "MALLOC_", "GLIBC_", "LD_"];

    pub(super) fn seal() {
        // Non-dumpable comes last: afterwards the memory of this process belongs to root.
        if let Err(error) = overwrite() {
            tracing::debug!(%error, "The initial environment is not overwritten.");
        }
        forbid_inspection();
    }

    pub(super) fn forbid_inspection() {
        // Where it cannot be set, for example in some sandboxes, everything else still works.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }

    /// Overwrites the values of the initial environment with zeros, except those that libraries use.
    fn overwrite() -> io::Result<()> {
        let process = std::fs::read_to_string("/proc/self/stat")?;
        let (start, end) = environment_range(&process).ok_or(io::ErrorKind::InvalidData)?;
        let length = end.checked_sub(start).filter(|length| *length <= MAX_BYTES);
        let length = usize::try_from(length.ok_or(io::ErrorKind::InvalidData)?).map_err(io::Error::other)?;
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
        let mut block = vec![0; length];
        memory.read_exact_at(&mut block, start)?;
        if !blank_values(&mut block) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        memory.write_all_at(&block, start)
    }

    /// Returns the addresses of the initial environment, fields 50 and 51. The name of the program in field 2 may
    /// contain spaces and parentheses.
    fn environment_range(process: &str) -> Option<(u64, u64)> {
        let (_, rest) = process.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace().skip(47);
        let (start, end) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        (start > 0).then_some((start, end))
    }

    /// Overwrites the values in a block of `NAME=value` entries that end with a zero byte. Returns `false` if the
    /// block does not look like one, and leaves it unchanged.
    fn blank_values(block: &mut [u8]) -> bool {
        if block.last().is_some_and(|last| *last != 0) {
            return false;
        }
        for entry in block.split_mut(|byte| *byte == 0) {
            let Some(equals) = entry.iter().position(|byte| *byte == b'=') else { continue };
            let (name, value) = entry.split_at_mut(equals + 1);
            let is_used = std::str::from_utf8(&name[..equals]).is_ok_and(|name| {
                is_inherited_name(name)
                    || USED.contains(&name)
                    || USED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            });
            if !is_used {
                value.fill(0);
            }
        }
        true
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn values_that_no_library_needs_are_overwritten() {
            let mut block =
                *b"PATH=/bin\0KEY=s3cret=x\0NO_COLOR=1\0LC_ALL=C\0noise\0OTEL_SERVICE_NAME=a\0EMPTY=\0";
            assert!(blank_values(&mut block));
            let expected =
                b"PATH=/bin\0KEY=\0\0\0\0\0\0\0\0\0NO_COLOR=1\0LC_ALL=C\0noise\0OTEL_SERVICE_NAME=a\0EMPTY=\0";
            assert_eq!(block.as_slice(), expected);
            assert!(!blank_values(&mut b"PATH=/bin".to_vec()));
            assert!(blank_values(&mut []));
        }

        #[test]
        fn the_range_is_found_behind_any_program_name() {
            let stat = |name: &str| {
                let zeros = "0 ".repeat(46);
                format!("7 ({name}) S {zeros}1000 2000 0")
            };
            for name in ["pegboard", "a) b", ") S 1 2 3"] {
                assert_eq!(environment_range(&stat(name)), Some((1000, 2000)), "{name}");
            }
            assert_eq!(environment_range("7 (pegboard) S 1"), None);
        }
    }
}

/// Elsewhere other processes of the user cannot be kept out.
#[cfg(not(target_os = "linux"))]
mod platform {
    pub(super) fn seal() {}

    pub(super) fn forbid_inspection() {}
}
