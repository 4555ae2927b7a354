//! Everything that is wrong with one use of `#[tool]`, gathered so that it is said at once.

use std::fmt;

use proc_macro2::TokenStream;
use quote::ToTokens;

/// What is wrong so far.
#[derive(Default)]
pub(crate) struct Mistakes(Option<syn::Error>);

impl Mistakes {
    /// Notes what is wrong at `place`.
    pub(crate) fn at(&mut self, place: impl ToTokens, message: impl fmt::Display) {
        self.add(syn::Error::new_spanned(place, message));
    }

    /// Notes one more mistake.
    pub(crate) fn add(&mut self, mistake: syn::Error) {
        match &mut self.0 {
            Some(mistakes) => mistakes.combine(mistake),
            None => self.0 = Some(mistake),
        }
    }

    /// The value, or the mistake noted and `None`.
    pub(crate) fn ok<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|mistake| self.add(mistake)).ok()
    }

    /// Whether nothing is wrong.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl ToTokens for Mistakes {
    /// A compiler error for each mistake.
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(self.0.as_ref().map(syn::Error::to_compile_error));
    }
}
