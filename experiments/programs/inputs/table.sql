create table t(a, b);
with recursive c(x) as (select 1 union all select x + 1 from c where x < 2000) insert into t select x, x * x from c;
create index i on t(b);
select sum(a), count(*) from t where b % 7 = 1;
pragma integrity_check;
