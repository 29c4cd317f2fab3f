//! What is requested from the server. In: a text such as `etc;keys=1M`. Out: keys, sizes, popularity, the share of sets.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http::{GoodStatuses, HttpRequest, path_is_one};
use crate::keys::MAX_KEY;
use crate::{LoadError, Size, as_text};
use tailsight_units::parse::{signed, whole as count};

/// The popularity of keys.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum Popularity {
    /// All the same: `uniform`.
    Uniform,
    /// The key of rank r in proportion to r^-skew: `zipf:0.99`.
    Zipf(f64),
}

impl FromStr for Popularity {
    type Err = LoadError;

    fn from_str(input: &str) -> Result<Self, LoadError> {
        match input.split_once(':') {
            None if input == "uniform" => Some(Self::Uniform),
            Some(("zipf", skew)) => signed(skew).filter(|s| (0.0..=10.0).contains(s)).map(Self::Zipf),
            _ => None,
        }
        .ok_or_else(|| LoadError::parse("a popularity", input, "uniform or zipf:SKEW (0 to 10, such as 0.99)"))
    }
}

impl fmt::Display for Popularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(skew) => write!(f, "zipf:{skew}"),
        }
    }
}

impl TryFrom<String> for Popularity {
    type Error = LoadError;
    fn try_from(text: String) -> Result<Self, LoadError> {
        text.parse()
    }
}

impl From<Popularity> for String {
    fn from(popularity: Popularity) -> Self {
        popularity.to_string()
    }
}

/// Requests by their content. As text: an optional preset (`etc`, `usr`), then `name=value` pairs, separated by `;`:
/// `usr;keys=1M;popularity=zipf:0.99`, `key=fixed:20;value=uniform:10,100;sets=0.1;preload=no`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// How many keys there are (`keys`).
    pub keys: u64,
    /// Sizes of key names, bytes (`key`), at least the prefix and the digits of the highest number.
    pub key_size: Size,
    /// Sizes of values, bytes (`value`); of the message for protocols without keys (echo).
    pub value_size: Size,
    /// Sizes of values are cut here, bytes (`max-value`).
    pub max_value: u32,
    /// The popularity of keys (`popularity`).
    pub popularity: Popularity,
    /// Share of requests that store, 0 to 1 (`sets`, or `get:set=30:1`).
    pub sets: f64,
    /// Whether every key is stored before the load (`preload=yes|no`). Without it, reads may miss.
    pub preload: bool,
    /// What key names begin with (`prefix`).
    pub key_prefix: String,
    /// Seed of the sizes of keys and values (`key-seed`): it must be the same on all agents, because replies are checked by
    /// it.
    pub key_seed: u64,
    /// What HTTP requests ask for (`path`), where [`Workload::requests`] has none.
    pub path: String,
    /// The HTTP requests that are sent, by weight; empty: `GET` of the path, and `POST` of a value for what stores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<HttpRequest>,
    /// Which HTTP status codes are good.
    #[serde(with = "as_text")]
    #[schemars(with = "String")]
    pub good_statuses: GoodStatuses,
    /// Service times asked of the synthetic server, in ns and any of the forms of a size (`service=exponential:10000`).
    pub service: Size,
    /// memcached text: meta commands with opaque ids (`meta=yes`).
    pub meta: bool,
    /// Redis: RESP3 (`resp3=yes`).
    pub resp3: bool,
}

impl Default for Workload {
    /// 10,000 keys of 16 bytes with values of 32, asked for uniformly, no sets.
    fn default() -> Self {
        Self {
            keys: 10_000,
            key_size: Size::Fixed(16),
            value_size: Size::Fixed(32),
            max_value: 1_000_000,
            popularity: Popularity::Uniform,
            sets: 0.0,
            preload: true,
            key_prefix: "ts".into(),
            key_seed: 0,
            path: "/".into(),
            requests: Vec::new(),
            good_statuses: GoodStatuses::default(),
            service: Size::Fixed(10_000),
            meta: false,
            resp3: false,
        }
    }
}

impl Workload {
    /// Facebook's ETC pool (Atikoglu et al. 2012): key sizes GEV, value sizes fifteen small ones and a generalised Pareto
    /// tail, 30 gets a set.
    #[must_use]
    pub fn etc() -> Self {
        Self {
            key_size: Size::Gev(30.7984, 8.20449, 0.078_688),
            value_size: Size::EtcValue,
            sets: 1.0 / 31.0,
            ..Self::default()
        }
    }

    /// Facebook's USR pool as Lancet and mutilate use it (Atikoglu et al. 2012): keys of 19 bytes, values of 2, 99.8 % gets.
    #[must_use]
    pub fn usr() -> Self {
        Self { key_size: Size::Fixed(19), value_size: Size::Fixed(2), sets: 0.002, ..Self::default() }
    }

    /// Refuses what cannot be asked.
    pub(crate) fn validate(&self) -> Result<(), LoadError> {
        let refuse = |reason: String| Err(LoadError::Plan(reason));
        if !(1..=64_000_000).contains(&self.keys) {
            return refuse(format!("keys must be 1 to 64M, got {}", self.keys));
        }
        if !(0.0..=1.0).contains(&self.sets) {
            return refuse(format!("the share of sets must be 0 to 1, got {}", self.sets));
        }
        if !self.key_prefix.bytes().all(|b| b.is_ascii_graphic()) || self.key_prefix.len() > 100 {
            return refuse("the key prefix must be at most 100 printable characters without spaces".into());
        }
        if self.max_value > 512 << 20 {
            return refuse("values of more than 512 MiB".into());
        }
        if let Size::Fixed(bytes) = self.key_size {
            let least = self.key_prefix.len() as u32 + (self.keys - 1).max(1).ilog10() + 1;
            if !(least..=MAX_KEY).contains(&bytes) {
                let keys = self.keys;
                return refuse(format!(
                    "keys of {bytes} bytes: {keys} of them with this prefix need {least} to {MAX_KEY}"
                ));
            }
        }
        if let Size::Fixed(bytes) = self.value_size
            && bytes > self.max_value
        {
            return refuse(format!("values of {bytes} bytes are above max-value={}", self.max_value));
        }
        path_is_one(&self.path)?;
        self.requests.iter().try_for_each(HttpRequest::validate)
    }
}

fn yes(text: &str) -> Option<bool> {
    match text {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

impl FromStr for Workload {
    type Err = LoadError;

    fn from_str(input: &str) -> Result<Self, LoadError> {
        const FORMS: &str = "etc or usr, then NAME=VALUE pairs separated by `;`: keys, key, value, max-value, \
         popularity, \
                             sets (or get:set=30:1), preload=yes|no, prefix, key-seed, path, service, meta=yes|no, \
                             resp3=yes|no";
        let mut workload = Self::default();
        for (i, part) in input.split(';').enumerate() {
            let fail = || LoadError::parse("part of a workload", part, FORMS);
            let Some((name, value)) = part.split_once('=') else {
                workload = match part {
                    "etc" if i == 0 => Self::etc(),
                    "usr" if i == 0 => Self::usr(),
                    "" => continue,
                    _ => return Err(fail()),
                };
                continue;
            };
            match name {
                "keys" => workload.keys = count(value).ok_or_else(fail)?,
                "key" => workload.key_size = value.parse()?,
                "value" => workload.value_size = value.parse()?,
                "max-value" => workload.max_value = count(value).and_then(|n| n.try_into().ok()).ok_or_else(fail)?,
                "popularity" => workload.popularity = value.parse()?,
                "sets" => workload.sets = signed(value).ok_or_else(fail)?,
                "get:set" => {
                    let (gets, sets) = value.split_once(':').ok_or_else(fail)?;
                    let (gets, sets) = (signed(gets).ok_or_else(fail)?, signed(sets).ok_or_else(fail)?);
                    if gets < 0.0 || sets < 0.0 || gets + sets <= 0.0 {
                        return Err(fail());
                    }
                    workload.sets = sets / (gets + sets);
                }
                "preload" => workload.preload = yes(value).ok_or_else(fail)?,
                "meta" => workload.meta = yes(value).ok_or_else(fail)?,
                "resp3" => workload.resp3 = yes(value).ok_or_else(fail)?,
                "prefix" => workload.key_prefix = value.into(),
                "key-seed" => workload.key_seed = value.parse().map_err(|_| fail())?,
                "path" => workload.path = value.into(),
                "service" => workload.service = value.parse()?,
                _ => return Err(fail()),
            }
        }
        workload.validate()?;
        Ok(workload)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |yes| if yes { "yes" } else { "no" };
        write!(
            f,
            "keys={};key={};value={};max-value={};popularity={};sets={};preload={};prefix={};key-seed={};\
             path={};service={};meta={};resp3={}",
            self.keys,
            self.key_size,
            self.value_size,
            self.max_value,
            self.popularity,
            self.sets,
            word(self.preload),
            self.key_prefix,
            self.key_seed,
            self.path,
            self.service,
            word(self.meta),
            word(self.resp3)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_json_describe_a_workload_whole() {
        for text in [
            "",
            "etc",
            "usr;keys=1k;get:set=9:1",
            "value=uniform:10,100;preload=no;popularity=zipf:0.99;service=exponential:10000;meta=yes",
        ] {
            let workload: Workload = text.parse().unwrap();
            assert_eq!(workload.to_string().parse::<Workload>().unwrap(), workload, "{text}");
            let json = serde_json::to_string(&workload).unwrap();
            assert_eq!(serde_json::from_str::<Workload>(&json).unwrap(), workload, "{json}");
        }
        assert!(("usr;get:set=9:1".parse::<Workload>().unwrap().sets - 0.1).abs() < 1e-12);
    }

    #[test]
    fn impossible_ones_are_refused() {
        for bad in [
            "keys=0",
            "keys=1G",
            "key=3",
            "key=251",
            "sets=2",
            "keys",
            "nonsense=1",
            "etc;usr",
            "preload=maybe",
            "path=x",
            "prefix=a b",
            "value=2M",
            "get:set=0:0",
        ] {
            assert!(bad.parse::<Workload>().is_err(), "{bad}");
        }
    }
}
