//! Entries of the file, with the secrets that they refer to.

use std::cell::OnceCell;

use pegboard_core::secret::Secret;
use serde_json::{Map, Value};

use crate::inventory::InventoryItem;

const REFERENCE: &str = "${keyring:";

/// An entry of the file.
pub(super) struct KnownItem<'a> {
    pub(super) item: &'a InventoryItem,
    secret: &'a dyn Fn(&str) -> Option<Secret>,
    revealed: OnceCell<Option<InventoryItem>>,
}

impl<'a> KnownItem<'a> {
    pub(super) fn new(item: &'a InventoryItem, secret: &'a dyn Fn(&str) -> Option<Secret>) -> Self {
        Self { item, secret, revealed: OnceCell::new() }
    }

    /// Returns the entry with the secrets that its `env` and `headers` refer to; `None` if it refers to none. They are
    /// read at the first call, since the keyring may ask the user.
    pub(super) fn revealed(&self) -> Option<&InventoryItem> {
        let reveal = || {
            let mut revealed = self.item.clone();
            let mut n_references = 0;
            for key in ["env", "headers"] {
                let values = revealed.value.get_mut(key).and_then(Value::as_object_mut);
                for value in values.into_iter().flat_map(Map::values_mut) {
                    let Value::String(text) = value else { continue };
                    if text.contains(REFERENCE) {
                        *text = self.reveal_text(text)?;
                        n_references += 1;
                    }
                }
            }
            (n_references > 0).then_some(revealed)
        };
        self.revealed.get_or_init(reveal).as_ref()
    }

    /// Replaces references by the secrets; `None` if one does not exist.
    fn reveal_text(&self, text: &str) -> Option<String> {
        let mut revealed = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once(REFERENCE) {
            let (name, behind) = behind.split_once('}')?;
            revealed.push_str(before);
            revealed.push_str((self.secret)(name)?.reveal());
            rest = behind;
        }
        Some(revealed + rest)
    }
}
