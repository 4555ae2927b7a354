//! The process table of the operating system.

use std::io;

/// An entry of the process table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessRow {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) group: u32,
    /// Start time, to tell apart processes that reuse an id; 0 where it is not available.
    pub(super) start_time: u64,
}

/// Reads the whole process table, except for zombies.
///
/// Partial results are an error, so that a process which was not read is not taken for exited.
#[cfg(target_os = "linux")]
pub(super) fn read_all() -> io::Result<Vec<ProcessRow>> {
    let mut rows = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        if let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            rows.extend(read_one(pid)?);
        }
    }
    Ok(rows)
}

/// Reads one process; `None` if it does not run.
#[cfg(target_os = "linux")]
pub(super) fn read_one(pid: u32) -> io::Result<Option<ProcessRow>> {
    use rustix::io::Errno;

    match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(parse(pid, &stat)),
        Err(error) => match Errno::from_io_error(&error) {
            // The process exited before or after its file was opened, or it is not visible to this user.
            Some(Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM) => Ok(None),
            Some(_) | None => Err(error),
        },
    }
}

#[cfg(target_os = "linux")]
fn parse(pid: u32, stat: &[u8]) -> Option<ProcessRow> {
    // The name of the program comes first, in parentheses, and may contain any bytes.
    let rest = &stat[stat.iter().rposition(|&byte| byte == b')')? + 1..];
    let rest = std::str::from_utf8(rest).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let small = |index: usize| u32::try_from(number(index)?).ok();
    let row = ProcessRow { pid, parent: small(1)?, group: small(2)?, start_time: number(19)? };
    // The main thread may have exited while others still run.
    let is_dead = matches!(*fields.first()?, "Z" | "X") && number(17)? <= 1;
    (!is_dead).then_some(row)
}

/// Returns `true` if a process was started with an environment variable, as `NAME=value`.
#[cfg(target_os = "linux")]
pub(super) fn has_variable(pid: u32, variable: &[u8]) -> bool {
    // Processes of other users cannot be read.
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|set| set == variable)
}

/// Environments are not available here.
#[cfg(not(target_os = "linux"))]
pub(super) fn has_variable(_pid: u32, _variable: &[u8]) -> bool {
    false
}

/// Reads the whole process table.
#[cfg(not(target_os = "linux"))]
pub(super) fn read_all() -> io::Result<Vec<ProcessRow>> {
    use std::process::{Command, Stdio};

    let mut command = Command::new("/bin/ps");
    command.args(["-A", "-o", "pid=,ppid=,pgid=,stat="]).stdin(Stdio::null()).stderr(Stdio::null());
    let ps = command.stdout(Stdio::piped()).spawn()?;
    let pid = ps.id();
    let output = ps.wait_with_output()?;
    if !output.status.success() {
        return Err(io::Error::other("ps failed"));
    }
    Ok(parse_ps(&output.stdout, pid))
}

/// Parses the output of `ps`, except for the row of `ps` itself: it is a child of this process, and has
/// exited.
#[cfg(any(test, not(target_os = "linux")))]
fn parse_ps(list: &[u8], ps: u32) -> Vec<ProcessRow> {
    let row = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let mut number = || fields.next()?.parse().ok();
        let row = ProcessRow { pid: number()?, parent: number()?, group: number()?, start_time: 0 };
        (!fields.next()?.starts_with('Z')).then_some(row)
    };
    String::from_utf8_lossy(list).lines().filter_map(row).filter(|row| row.pid != ps).collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn stat(state: &str, n_threads: u32) -> Vec<u8> {
        let head = b"7 (evil) R 1 1 \n\xff) ".to_vec();
        let tail = format!("{state} 3 5 5 0 -1 4 0 0 0 0 0 0 0 0 20 0 {n_threads} 0 123456 0 0");
        [head, tail.into_bytes()].concat()
    }

    #[test]
    fn stat_is_parsed_whatever_the_process_name() {
        let expected = ProcessRow { pid: 7, parent: 3, group: 5, start_time: 123_456 };
        assert_eq!(parse(7, &stat("S", 1)), Some(expected));
        assert_eq!(parse(7, &stat("Z", 2)), Some(expected), "other threads still run");
        assert_eq!(parse(7, &stat("Z", 1)), None, "no thread runs");
        for broken in [&b""[..], b")", b"1 (a", b"1 (a) S x", b"1 (a) S 1 2 3"] {
            assert_eq!(parse(7, broken), None, "{broken:?}");
        }
    }

    #[test]
    fn this_process_is_listed() {
        let own = std::process::id();
        assert!(read_all().unwrap().iter().any(|row| row.pid == own));
    }

    #[test]
    fn the_ps_process_is_not_listed() {
        let list = b"    1     0     1 Ss\n 900   1 900 S+\n 901 900 901 Z\n 902 900 900 R+\n  odd line\n";
        let pids: Vec<u32> = parse_ps(list, 902).iter().map(|row| row.pid).collect();
        assert_eq!(pids, [1, 900]);
    }
}
