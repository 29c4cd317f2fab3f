//! The classes of requests that a diagnosis is limited to (`--class`).
//!
//! In: what a user wrote, the messages of a run and its classes. Out: [`ChosenClass`], or an error that lists the classes; and which messages
//! are of it ([`InClass`]).

use std::borrow::Cow;

use tailsight_lifetime::{Lifetimes, Message, RequestClass};

use crate::Error;
use crate::categories::shown;
use crate::model::{ChosenClass, Diagnosis};

/// Classes that an error lists.
const LISTED: usize = 12;

/// Which messages are compared, by their class.
#[derive(Clone, Debug)]
pub struct InClass(Option<Vec<bool>>);

impl InClass {
    /// Of any class.
    pub const ANY: InClass = InClass(None);

    /// Of those chosen, if any were. `classes`: the run's, by index.
    pub fn new(chosen: Option<&ChosenClass>, classes: &[RequestClass]) -> InClass {
        let is_chosen =
            |chosen: &ChosenClass| classes.iter().map(|class| chosen.classes.contains(&shown(&class.name))).collect();
        InClass(chosen.map(is_chosen))
    }

    /// Of those that a diagnosis is limited to.
    pub fn of(diagnosis: &Diagnosis, lifetimes: &Lifetimes) -> InClass {
        InClass::new(diagnosis.class.as_ref(), &lifetimes.classes)
    }

    /// Whether no class was chosen.
    pub fn is_any(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a message is of it.
    pub fn has(&self, message: &Message) -> bool {
        self.0.as_ref().is_none_or(|chosen| chosen.get(usize::from(message.class)).copied().unwrap_or(false))
    }

    /// Its messages.
    pub fn only<'a>(&self, messages: &'a [Message]) -> Cow<'a, [Message]> {
        match self.is_any() {
            true => Cow::Borrowed(messages),
            false => Cow::Owned(messages.iter().copied().filter(|m| self.has(m)).collect()),
        }
    }
}

/// A class by its name as it is shown, by any case of it, or by its only beginning; with `*` at its end all classes that begin so.
///
/// # Errors
/// [`Error::NoSuchClass`] when none or several are meant, and for a run without classes.
pub fn choose(text: &str, messages: &[Message], classes: &[RequestClass]) -> Result<ChosenClass, Error> {
    let counted = counted(messages, classes);
    let refused = |why: String| Err(Error::NoSuchClass { text: text.to_owned(), why });
    if classes.is_empty() {
        let why = "the run was recorded without --protocol, so that its messages have no class; record again with --protocol auto";
        return refused(why.into());
    }
    let exact = |name: &str| name == text;
    let alike = |name: &str| name.eq_ignore_ascii_case(text);
    let (beginning, is_prefix) = text.strip_suffix('*').map_or((text, false), |beginning| (beginning, true));
    let begins = |name: &str| name.starts_with(beginning);
    let begins_alike =
        |name: &str| name.get(..beginning.len()).is_some_and(|start| start.eq_ignore_ascii_case(beginning));
    // A name may end in a star itself.
    let meanings: [&dyn Fn(&str) -> bool; 4] = [&exact, &alike, &begins, &begins_alike];
    let meant = meanings.into_iter().find_map(|is_meant| {
        let named: Vec<&(String, u64)> = counted.iter().filter(|(name, _)| is_meant(name)).collect();
        (!named.is_empty()).then_some(named)
    });
    let names = |named: &[&(String, u64)]| named.iter().map(|(name, _)| name.clone()).collect();
    match meant.as_deref() {
        None => refused(format!(
            "no class of this run is called so or begins so; its classes are {}",
            list(&counted.iter().collect::<Vec<_>>())
        )),
        Some([(name, _)]) => Ok(ChosenClass { name: name.clone(), classes: vec![name.clone()] }),
        Some(several) if is_prefix => Ok(ChosenClass { name: text.to_owned(), classes: names(several) }),
        Some(several) => refused(format!(
            "several classes begin so: {}; write more of the name, or a * behind it for all of them",
            list(several)
        )),
    }
}

/// As [`choose`], in this run and in another one that it is compared with: the same classes of both.
///
/// # Errors
/// As [`choose`], of either run.
pub fn choose_in_both(text: &str, run: &Lifetimes, other: &Lifetimes) -> Result<ChosenClass, Error> {
    let mut chosen = choose(text, &run.messages, &run.classes)?;
    // A beginning may mean another class there.
    let in_other = choose(&chosen.name, &other.messages, &other.classes);
    let is_same = |other: &ChosenClass| chosen.name.ends_with('*') || other.name == chosen.name;
    match in_other {
        Ok(other) if is_same(&other) => {
            chosen.classes.extend(other.classes);
            chosen.classes.sort_unstable();
            chosen.classes.dedup();
            Ok(chosen)
        }
        _ => {
            let classes = list(&counted(&other.messages, &other.classes).iter().collect::<Vec<_>>());
            let why =
                format!("the run that is compared with has no messages of {}; its classes are {classes}", chosen.name);
            Err(Error::NoSuchClass { text: text.to_owned(), why })
        }
    }
}

/// The classes that have messages, most of them first. Two may be shown alike.
fn counted(messages: &[Message], classes: &[RequestClass]) -> Vec<(String, u64)> {
    let mut counts = vec![0_u64; classes.len()];
    for message in messages {
        if let Some(count) = counts.get_mut(usize::from(message.class)) {
            *count += 1;
        }
    }
    let mut counted: Vec<(String, u64)> =
        classes.iter().map(|class| shown(&class.name)).zip(counts).filter(|(_, count)| *count > 0).collect();
    counted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counted.dedup_by(|second, first| {
        let same = second.0 == first.0;
        first.1 += if same { second.1 } else { 0 };
        same
    });
    counted
}

/// Classes with their messages, as far as they are listed.
fn list(counted: &[&(String, u64)]) -> String {
    let listed: Vec<String> = counted.iter().take(LISTED).map(|(name, n)| format!("{name} ({n})")).collect();
    let rest = counted.len().saturating_sub(LISTED);
    let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    match listed.is_empty() {
        true => "none".into(),
        false => listed.join(", ") + &rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 40 of GET /item, 20 of GET /items, 10 of POST /order v8..16, 5 of get /item, 3 of GET /users/*, 2 of GET /users/*/orders.
    fn run() -> (Vec<Message>, Vec<RequestClass>) {
        let counts = [
            ("unframed", 0),
            ("GET /item", 40),
            ("GET /items", 20),
            ("POST /order v8..16", 10),
            ("get /cart", 5),
            ("GET /users/*", 3),
            ("GET /users/*/orders", 2),
        ];
        let class = |name: &str| RequestClass { name: name.into(), ..RequestClass::default() };
        let messages = (0..).zip(counts).flat_map(|(at, (_, n))| vec![Message { class: at, ..Message::default() }; n]);
        (messages.collect(), counts.map(|(name, _)| class(name)).to_vec())
    }

    fn meant(text: &str) -> Result<Vec<String>, String> {
        let (messages, classes) = run();
        choose(text, &messages, &classes).map(|chosen| chosen.classes).map_err(|error| error.to_string())
    }

    #[test]
    fn a_class_is_meant_by_its_name_any_case_of_it_or_its_only_beginning() {
        assert_eq!(meant("GET /item").unwrap(), ["GET /item"], "although another one begins so");
        assert_eq!(meant("post /order V8..16").unwrap(), ["POST /order v8..16"]);
        assert_eq!(meant("POST").unwrap(), ["POST /order v8..16"]);
        assert_eq!(meant("GET /c").unwrap(), ["get /cart"], "begins so in another case");
        assert_eq!(meant("GET /users/*").unwrap(), ["GET /users/*"], "a name may end in a star");
    }

    #[test]
    fn a_star_means_all_that_begin_so() {
        assert_eq!(meant("GET /item*").unwrap(), ["GET /item", "GET /items"]);
        assert_eq!(meant("GET /users*").unwrap(), ["GET /users/*", "GET /users/*/orders"]);
        assert_eq!(meant("*").unwrap().len(), 6, "a class without messages is none");
        let (messages, classes) = run();
        assert_eq!(choose("GET /item*", &messages, &classes).unwrap().name, "GET /item*");
        assert_eq!(choose("PO*", &messages, &classes).unwrap().name, "POST /order v8..16", "it is that one alone");
    }

    #[test]
    fn what_means_no_class_or_several_is_said_with_the_classes() {
        let none = meant("DELETE /").unwrap_err();
        assert!(none.contains("no class of this run") && none.contains("GET /item (40), GET /items (20)"), "{none}");
        assert!(!none.contains("unframed"), "{none}");
        let several = meant("GET /us").unwrap_err();
        assert!(several.contains("several classes begin so: GET /users/* (3), GET /users/*/orders (2)"), "{several}");
        let without = choose("GET", &[], &[]).unwrap_err().to_string();
        assert!(without.contains("without --protocol"), "{without}");
        assert!(meant("é").is_err(), "not cut within a character");
    }

    #[test]
    fn long_lists_are_cut() {
        let class = |at: u16| RequestClass { name: format!("c{at}"), ..RequestClass::default() };
        let messages: Vec<Message> = (0..20).map(|class| Message { class, ..Message::default() }).collect();
        let error = choose("x", &messages, &(0..20).map(class).collect::<Vec<_>>()).unwrap_err().to_string();
        assert!(error.contains("c0 (1), c1 (1), c10 (1)") && error.ends_with(" and 8 more"), "{error}");
    }

    #[test]
    fn another_run_must_have_the_class_too() {
        let (messages, classes) = run();
        let lifetimes = |without: &str| {
            let messages = messages.iter().filter(|m| !classes[usize::from(m.class)].name.starts_with(without));
            let parts = vec![Default::default(); messages.clone().count()];
            let mut lifetimes = Lifetimes::from_parts("shop", messages.copied().collect(), vec![], vec![], parts);
            // By other indices: none of them is the other run's.
            lifetimes.classes = classes.clone();
            lifetimes
        };
        let (run, other) = (lifetimes("nothing"), lifetimes("GET /items"));
        assert_eq!(choose_in_both("GET /item", &run, &other).unwrap().classes, ["GET /item"]);
        assert_eq!(choose_in_both("GET /item*", &run, &other).unwrap().classes, ["GET /item", "GET /items"]);
        let refused = choose_in_both("GET /items", &run, &other).unwrap_err().to_string();
        assert!(refused.contains("has no messages of GET /items; its classes are GET /item (40)"), "{refused}");
        let in_class = InClass::new(Some(&choose_in_both("POST", &run, &other).unwrap()), &other.classes);
        assert_eq!(in_class.only(&other.messages).len(), 10);
        assert_eq!(InClass::ANY.only(&other.messages).len(), other.messages.len());
    }
}
