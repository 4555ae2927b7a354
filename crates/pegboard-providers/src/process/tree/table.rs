//! What runs on this machine.

use std::io;

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) group: u32,
    /// When it began, which tells it from another that has its number later; 0 where nobody says.
    pub(super) began: u64,
}

/// Everything that runs. What ended and was not waited for does not.
///
/// It is all of it or an error, so that nobody takes for gone what was only not seen.
#[cfg(target_os = "linux")]
pub(super) fn read() -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        if let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            rows.extend(read_one(pid)?);
        }
    }
    Ok(rows)
}

/// One process; `None` if it does not run.
#[cfg(target_os = "linux")]
pub(super) fn read_one(pid: u32) -> io::Result<Option<Row>> {
    use rustix::io::Errno;

    match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(parse(pid, &stat)),
        Err(error) => match Errno::from_io_error(&error) {
            // It ended just now, before its file was opened or after; or it is not for this user to see.
            Some(Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM) => Ok(None),
            Some(_) | None => Err(error),
        },
    }
}

#[cfg(target_os = "linux")]
fn parse(pid: u32, stat: &[u8]) -> Option<Row> {
    // The name of the program comes before, in parentheses, and may have anything in it.
    let rest = &stat[stat.iter().rposition(|&byte| byte == b')')? + 1..];
    let rest = std::str::from_utf8(rest).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let small = |index: usize| u32::try_from(number(index)?).ok();
    let row = Row { pid, parent: small(1)?, group: small(2)?, began: number(19)? };
    // The first thread may have ended before the others, which run on.
    let is_dead = matches!(*fields.first()?, "Z" | "X") && number(17)? <= 1;
    (!is_dead).then_some(row)
}

/// Everything that runs.
#[cfg(not(target_os = "linux"))]
pub(super) fn read() -> io::Result<Vec<Row>> {
    use std::process::{Command, Stdio};

    let mut command = Command::new("/bin/ps");
    command.args(["-A", "-o", "pid=,ppid=,pgid=,stat="]).stdin(Stdio::null()).stderr(Stdio::null());
    let lister = command.stdout(Stdio::piped()).spawn()?;
    let pid = lister.id();
    let listed = lister.wait_with_output()?;
    if !listed.status.success() {
        return Err(io::Error::other("the system does not say what runs"));
    }
    Ok(parse_list(&listed.stdout, pid))
}

/// The rows of a list, but for the one that made it: it is a child of this process, and gone by now.
#[cfg(any(test, not(target_os = "linux")))]
fn parse_list(list: &[u8], lister: u32) -> Vec<Row> {
    let row = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let mut number = || fields.next()?.parse().ok();
        let row = Row { pid: number()?, parent: number()?, group: number()?, began: 0 };
        (!fields.next()?.starts_with('Z')).then_some(row)
    };
    String::from_utf8_lossy(list).lines().filter_map(row).filter(|row| row.pid != lister).collect()
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
    fn a_process_is_read_whatever_it_is_called() {
        let expected = Row { pid: 7, parent: 3, group: 5, began: 123_456 };
        assert_eq!(parse(7, &stat("S", 1)), Some(expected));
        assert_eq!(parse(7, &stat("Z", 2)), Some(expected), "its other threads run on");
        assert_eq!(parse(7, &stat("Z", 1)), None, "nothing of it runs");
        for broken in [&b""[..], b")", b"1 (a", b"1 (a) S x", b"1 (a) S 1 2 3"] {
            assert_eq!(parse(7, broken), None, "{broken:?}");
        }
    }

    #[test]
    fn this_process_is_among_what_runs() {
        let own = std::process::id();
        assert!(read().unwrap().iter().any(|row| row.pid == own));
    }

    #[test]
    fn who_lists_what_runs_is_not_part_of_it() {
        let list = b"    1     0     1 Ss\n 900   1 900 S+\n 901 900 901 Z\n 902 900 900 R+\n  odd line\n";
        let pids: Vec<u32> = parse_list(list, 902).iter().map(|row| row.pid).collect();
        assert_eq!(pids, [1, 900]);
    }
}
