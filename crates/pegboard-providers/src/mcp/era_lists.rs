//! The lists of a server that speaks both eras, merged: one may have items that the other does not have.

use std::collections::HashSet;

use pegboard_wire::client::Era;

/// Last known lists of one kind, by the era of the connection that has listed the items.
#[derive(Debug)]
pub(super) struct EraLists<T> {
    session: Option<EraList<T>>,
    stateless: Option<EraList<T>>,
}

#[derive(Debug)]
struct EraList<T> {
    source: ListOrigin,
    items: Vec<T>,
}

/// The lists of both eras as one.
#[derive(Debug)]
pub(super) struct MergedList<T> {
    pub(super) items: Vec<T>,
    /// Items of the other era are gone, because they were those of an earlier process.
    pub(super) has_lost_items: bool,
}

/// Connection that has listed items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListOrigin {
    /// The primary one, by its generation.
    Primary(u64),
    /// That of the clients of the other era.
    Secondary,
}

impl<T> Default for EraLists<T> {
    fn default() -> Self {
        Self { session: None, stateless: None }
    }
}

impl<T: Clone> EraLists<T> {
    /// Records a list and returns it with the items that only the other era has. Those that its own era had before
    /// are gone.
    pub(super) fn merge(
        &mut self,
        era: Era,
        source: ListOrigin,
        items: Vec<T>,
        key: impl Fn(&T) -> String,
    ) -> MergedList<T> {
        let (own, other) = match era {
            Era::Session => (&mut self.session, &mut self.stateless),
            Era::Stateless => (&mut self.stateless, &mut self.session),
        };
        let before = own.as_ref();
        // A server that was started again may be another one. The secondary connection keeps its list current.
        let is_restarted =
            before.is_some_and(|before| before.source != source && source != ListOrigin::Secondary);
        let lost = other.take_if(|other| is_restarted && other.source != ListOrigin::Secondary);
        let Some(others) = other.as_ref().map(|other| &other.items) else {
            *own = Some(EraList { source, items: items.clone() });
            return MergedList { items, has_lost_items: lost.is_some() };
        };
        let is_addition =
            source == ListOrigin::Secondary && before.is_none_or(|before| before.source != source);
        let (first, second) = if is_addition { (others, &items) } else { (&items, others) };
        let mut known: HashSet<String> = first.iter().map(&key).collect();
        if !is_addition {
            known.extend(before.iter().flat_map(|before| before.items.iter().map(&key)));
        }
        let added = second.iter().filter(|item| !known.contains(&key(item)));
        let merged = first.iter().chain(added).cloned().collect();
        *own = Some(EraList { source, items });
        MergedList { items: merged, has_lost_items: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_items_of_both_eras() {
        use Era::{Session, Stateless};
        use ListOrigin::{Primary, Secondary};
        let steps: [(Era, ListOrigin, &str, &str); 9] = [
            (Stateless, Primary(1), "a b x", "a b x"),
            // The server is started again for clients with sessions.
            (Session, Primary(2), "b a y", "b a y x"),
            (Session, Primary(2), "b a", "b a x"),
            // A second connection adds what only it has, and does not change the order.
            (Stateless, Secondary, "x a b z", "b a x z"),
            (Stateless, Secondary, "a b z", "a b z"),
            (Session, Primary(2), "b a y", "b a y z"),
            // What one era no longer has is gone, as on a server whose list is the same in both.
            (Session, Primary(2), "b", "b z"),
            // The second connection has its own list, whichever process the first one has.
            (Session, Primary(3), "c", "c a z"),
            (Stateless, Secondary, "a", "a c"),
        ];
        let mut lists = EraLists::default();
        for (era, source, listed, merged) in steps {
            let items = listed.split(' ').map(str::to_owned).collect();
            let found = lists.merge(era, source, items, String::clone);
            assert_eq!(
                (found.items.join(" ").as_str(), found.has_lost_items),
                (merged, false),
                "{era:?} {listed}"
            );
        }
    }

    #[test]
    fn a_server_that_was_started_again_may_be_another_one() {
        let mut lists = EraLists::default();
        let mut list = |era, generation, items: &str| {
            let items = items.split(' ').map(str::to_owned).collect();
            let merged = lists.merge(era, ListOrigin::Primary(generation), items, String::clone);
            (merged.items.join(" "), merged.has_lost_items)
        };
        assert_eq!(list(Era::Stateless, 1, "a x"), ("a x".to_owned(), false));
        assert_eq!(list(Era::Session, 2, "a"), ("a x".to_owned(), false));
        assert_eq!(list(Era::Session, 3, "a"), ("a".to_owned(), true));
    }
}
