//! Compile errors of one use of `#[tool]`, collected so that all are reported at once.

use std::fmt;

use proc_macro2::TokenStream;
use quote::ToTokens;

/// Errors collected so far.
#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    /// Adds an error at the tokens of `place`.
    pub(crate) fn push_spanned(&mut self, place: impl ToTokens, message: impl fmt::Display) {
        self.push(syn::Error::new_spanned(place, message));
    }

    /// Adds an error.
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Returns the value of `result`, or adds its error and returns `None`.
    pub(crate) fn handle<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// Returns `true` if there are no errors.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl ToTokens for Errors {
    /// Emits a compile error for each entry.
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(self.0.as_ref().map(syn::Error::to_compile_error));
    }
}
