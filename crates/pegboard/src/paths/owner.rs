//! The current user as the owner of files.

use pegboard::config::trust::FileOwner;

/// Maximum size of the user database that is read.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Returns the current user.
pub(super) fn current() -> FileOwner {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let private_group = is_private_group((uid, gid), &read("/etc/passwd"), &read("/etc/group"));
    FileOwner { uid, private_group: private_group.then_some(gid) }
}

/// Reads a local database of users or groups. Without it no group is private.
fn read(path: &str) -> String {
    use std::io::Read;

    let mut text = String::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    if read.is_ok() { text } else { String::new() }
}

/// Returns `true` if a group is the user's own: it is their primary group, has their name or number, and no other
/// member.
fn is_private_group((uid, gid): (u32, u32), users: &str, groups: &str) -> bool {
    let fields = |text: &str| -> Vec<Vec<String>> {
        text.lines().map(|line| line.split(':').map(str::to_owned).collect()).collect()
    };
    let has = |line: &[String], at: usize, id: u32| line.get(at).is_some_and(|field| field.parse() == Ok(id));
    let users = fields(users);
    let Some(user) = users.iter().find(|line| has(line, 2, uid) && has(line, 3, gid)) else { return false };
    let name = &user[0];
    let is_shared = users.iter().any(|line| has(line, 3, gid) && !has(line, 2, uid));
    let groups = fields(groups);
    let Some(group) = groups.iter().find(|line| has(line, 2, gid)) else { return uid == gid && !is_shared };
    let is_own = group.first() == Some(name) || gid == uid;
    let members = group.get(3).map(String::as_str).unwrap_or_default();
    is_own && !is_shared && members.split(',').all(|member| member.is_empty() || member == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_private_if_it_is_the_users_own_and_has_no_other_member() {
        let users = "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\nbob:x:1001:100::/:\neve:x:1002:1003::/:\n";
        for (ids, group, is_private) in [
            ((1000, 1000), "ada:x:1000:", true),
            ((1000, 1000), "ada:x:1000:ada", true),
            ((1000, 1000), "ada:x:1000:bob", false),
            ((1000, 1000), "ada:x:1000:ada,bob", false),
            ((1000, 1000), "people:x:1000:", true),
            ((1000, 1000), "", true),
            ((0, 0), "root:x:0:", true),
            ((1001, 100), "users:x:100:", false),
            ((1002, 1003), "eve:x:1003:", true),
            ((1002, 1003), "others:x:1003:", false),
            ((1002, 1003), "", false),
            ((1000, 100), "users:x:100:", false),
            ((4000, 4000), "", false),
        ] {
            assert_eq!(is_private_group(ids, users, group), is_private, "{ids:?} {group}");
        }
        let shared = format!("{users}carl:x:1004:1000::/:\n");
        assert!(!is_private_group((1000, 1000), &shared, "ada:x:1000:"));
    }
}
