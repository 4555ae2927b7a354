//! Requests in progress by their id.

use foldhash::HashMap;

use crate::message::Id;

/// Requests of one client in progress. A client mostly has one at a time, which needs no table, and an idle one
/// keeps no memory.
#[derive(Debug)]
pub(crate) struct RequestMap<V> {
    single: Option<(Id, V)>,
    /// Requests that began while there was a single one. Dropped when no request is in progress; boxed, since there
    /// may be very many clients.
    others: Option<Box<HashMap<Id, V>>>,
}

impl<V> Default for RequestMap<V> {
    fn default() -> Self {
        Self { single: None, others: None }
    }
}

impl<V> RequestMap<V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.single.is_none() && self.others.is_none()
    }

    pub(crate) fn contains(&self, id: &Id) -> bool {
        self.is_single(id) || self.others.as_ref().is_some_and(|others| others.contains_key(id))
    }

    pub(crate) fn get_mut(&mut self, id: &Id) -> Option<&mut V> {
        match &mut self.single {
            Some((single, value)) if single == id => Some(value),
            _ => self.others.as_mut()?.get_mut(id),
        }
    }

    /// Inserts a request, or replaces the one with this id.
    pub(crate) fn insert(&mut self, id: Id, value: V) {
        if let Some(known) = self.get_mut(&id) {
            *known = value;
        } else if self.single.is_none() {
            self.single = Some((id, value));
        } else {
            self.others.get_or_insert_default().insert(id, value);
        }
    }

    pub(crate) fn remove(&mut self, id: &Id) -> Option<V> {
        let removed = if self.is_single(id) {
            self.single.take().map(|(_, value)| value)
        } else {
            self.others.as_mut()?.remove(id)
        };
        // The table stays while there are other requests, so that a busy client does not allocate it for each.
        if self.single.is_none() && self.others.as_ref().is_some_and(|others| others.is_empty()) {
            self.others = None;
        }
        removed
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        let others = self.others.iter().flat_map(|others| others.values());
        self.single.iter().map(|(_, value)| value).chain(others)
    }

    /// Removes all requests.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (Id, V)> + use<V> {
        let Self { single, others } = std::mem::take(self);
        single.into_iter().chain(others.into_iter().flat_map(|others| *others))
    }

    fn is_single(&self, id: &Id) -> bool {
        self.single.as_ref().is_some_and(|(single, _)| single == id)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Applies insertions (`+`) and removals (`-`) to the map and to a model of it.
    fn check(steps: &[(char, i64)]) {
        let (mut map, mut model) = (RequestMap::default(), BTreeMap::new());
        for (number, (step, id)) in steps.iter().enumerate() {
            match step {
                '+' => {
                    map.insert(Id::Number(*id), number);
                    model.insert(*id, number);
                }
                _ => assert_eq!(map.remove(&Id::Number(*id)), model.remove(id), "{steps:?}"),
            }
            for id in 0..4 {
                let key = Id::Number(id);
                assert_eq!(map.contains(&key), model.contains_key(&id), "{steps:?}");
                assert_eq!(map.get_mut(&key), model.get_mut(&id), "{steps:?}");
            }
            let mut values: Vec<usize> = map.values().copied().collect();
            values.sort_unstable();
            let mut expected: Vec<usize> = model.values().copied().collect();
            expected.sort_unstable();
            assert_eq!(values, expected, "{steps:?}");
            assert_eq!(map.is_empty(), model.is_empty(), "{steps:?}");
        }
        let taken: BTreeMap<_, _> = map.take().map(|(id, value)| (format!("{id:?}"), value)).collect();
        assert_eq!(taken.len(), model.len(), "{steps:?}");
        assert!(map.is_empty());
    }

    #[test]
    fn requests_are_found_until_they_are_removed() {
        check(&[('+', 1), ('-', 1), ('+', 2), ('-', 1)]);
        check(&[('+', 1), ('+', 1), ('-', 1)]);
        check(&[('+', 1), ('+', 2), ('-', 1), ('+', 2), ('+', 3), ('-', 2), ('-', 3)]);
        check(&[('+', 1), ('+', 2), ('+', 3), ('-', 3), ('-', 2), ('+', 0)]);
        check(&[('+', 1), ('+', 2), ('-', 2), ('-', 1), ('-', 1), ('+', 1)]);
    }

    #[test]
    fn an_idle_client_keeps_no_table() {
        let mut map = RequestMap::default();
        for id in 0..10 {
            map.insert(Id::Number(id), ());
        }
        for id in 0..10 {
            map.remove(&Id::Number(id));
        }
        assert!(map.others.is_none());
    }
}
