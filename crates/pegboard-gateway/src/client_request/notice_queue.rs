//! Notices of a running tool that its client has not received yet.

use std::collections::VecDeque;

use pegboard_core::client::{Notice, ProgressUpdate};
use pegboard_json::RawJson;

/// Maximum number of notices.
const MAX_NOTICES: usize = 1_000;
/// Maximum size of the notices for a client that listens, in bytes. One always fits.
const MAX_BYTES: usize = 1 << 20;
/// Maximum size of the notices while no client listens. Many calls may be suspended at once, for an hour each.
const MAX_UNHEARD_BYTES: usize = 64 << 10;
/// Bytes that a notice takes besides its content.
const NOTICE_OVERHEAD: usize = size_of::<Notice>();

/// The notices of one call, in order. Beyond its limits, log messages are dropped first, then progress, the oldest ones
/// first.
#[derive(Default)]
pub(super) struct NoticeQueue {
    notices: VecDeque<Notice>,
    n_bytes: usize,
    /// Number of notices that belong to the reply that is about to be sent.
    n_final: usize,
}

impl NoticeQueue {
    fn len(&self) -> usize {
        self.notices.len()
    }

    pub(super) fn pop_front(&mut self) -> Option<Notice> {
        self.remove(0)
    }

    /// Ends the notices that belong to the next reply.
    pub(super) fn finish(&mut self) {
        self.n_final = self.len();
    }

    /// Removes a notice that belongs to the next reply.
    pub(super) fn pop_final(&mut self) -> Option<Notice> {
        if self.n_final == 0 { None } else { self.pop_front() }
    }

    /// Adds a notice; returns the number of notices that are dropped.
    pub(super) fn push(&mut self, notice: Notice, is_listening: bool) -> u64 {
        self.n_bytes += n_bytes(&notice);
        self.notices.push_back(notice);
        let (max_bytes, n_fitting) = if is_listening { (MAX_BYTES, 1) } else { (MAX_UNHEARD_BYTES, 0) };
        let mut n_dropped = 0;
        while self.len() > MAX_NOTICES || (self.n_bytes > max_bytes && self.len() > n_fitting) {
            let first = |is_kind: fn(&Notice) -> bool| self.notices.iter().position(is_kind);
            let dropped = first(|notice| matches!(notice, Notice::Log(_)))
                .or_else(|| first(|notice| matches!(notice, Notice::Progress(_))))
                .unwrap_or(self.len() - 1);
            self.remove(dropped);
            n_dropped += 1;
        }
        n_dropped
    }

    fn remove(&mut self, position: usize) -> Option<Notice> {
        let removed = self.notices.remove(position)?;
        self.n_bytes -= n_bytes(&removed);
        self.n_final -= usize::from(position < self.n_final);
        Some(removed)
    }
}

fn n_bytes(notice: &Notice) -> usize {
    let of = |params: &Option<RawJson>| params.as_ref().map_or(0, |params| params.as_bytes().len());
    let content = match notice {
        Notice::Progress(ProgressUpdate { message, params, .. }) => {
            message.as_ref().map_or(0, String::len) + of(params)
        }
        Notice::Log(params) => params.as_bytes().len(),
        Notice::Custom { method, params } => method.len() + of(params),
        Notice::Task(_) => 0,
    };
    NOTICE_OVERHEAD + content
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(n_bytes: usize) -> Notice {
        Notice::Log(RawJson::of(&"x".repeat(n_bytes)))
    }

    fn progress(done: f64) -> Notice {
        Notice::Progress(ProgressUpdate { done, total: None, message: None, params: None })
    }

    /// Adds notices; returns the number of dropped ones and the progress that is left, with a `-` for each other notice.
    fn check(notices: Vec<Notice>, is_listening: bool, expected: (u64, &str)) {
        let mut queue = NoticeQueue::default();
        let n_dropped = notices.into_iter().map(|notice| queue.push(notice, is_listening)).sum();
        let left = std::iter::from_fn(|| queue.pop_front()).map(|notice| match notice {
            Notice::Progress(progress) => progress.done.to_string(),
            Notice::Log(_) | Notice::Custom { .. } | Notice::Task(_) => "-".to_owned(),
        });
        assert_eq!((n_dropped, left.collect::<Vec<_>>().join(" ").as_str()), expected);
        assert_eq!(queue.n_bytes, 0);
    }

    #[test]
    fn a_call_that_no_client_listens_to_keeps_little() {
        let large = MAX_UNHEARD_BYTES;
        check(vec![progress(1.0), log(10), progress(2.0)], false, (0, "1 - 2"));
        check(vec![progress(1.0), log(large), progress(2.0)], false, (1, "1 2"));
        check(vec![log(large / 2), progress(1.0), log(large / 2)], false, (1, "1 -"));
        check(vec![log(large)], false, (1, ""));
        let custom = |n_bytes: usize| {
            let params = Some(RawJson::of(&"x".repeat(n_bytes)));
            Notice::Custom { method: "notifications/x".into(), params }
        };
        let nearly_all = large - 2 * NOTICE_OVERHEAD - 30;
        check(vec![progress(1.0), custom(nearly_all), progress(2.0)], false, (1, "- 2"));
        check(vec![custom(large / 2), custom(large / 2)], false, (1, "-"));
    }

    #[test]
    fn a_client_that_listens_gets_notices_of_any_size() {
        check(vec![log(4 * MAX_BYTES)], true, (0, "-"));
        check(vec![log(4 * MAX_BYTES), log(1)], true, (1, "-"));
        check(vec![log(MAX_UNHEARD_BYTES), progress(1.0)], true, (0, "- 1"));
    }

    #[test]
    fn later_notices_do_not_take_the_place_of_dropped_ones() {
        let mut queue = NoticeQueue::default();
        queue.push(log(MAX_UNHEARD_BYTES / 2), true);
        queue.push(progress(1.0), true);
        queue.finish();
        assert_eq!(queue.push(log(MAX_UNHEARD_BYTES / 2), false), 1);
        assert_eq!((queue.pop_final(), queue.pop_final()), (Some(progress(1.0)), None));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn the_latest_progress_is_kept() {
        let mut queue = NoticeQueue::default();
        let n_dropped: u64 = (0..2_000).map(|done| queue.push(progress(f64::from(done)), true)).sum();
        assert_eq!((n_dropped, queue.len()), (1_000, MAX_NOTICES));
        assert_eq!(queue.pop_front(), Some(progress(1_000.0)));
    }
}
