-- A small shop: load, index, report, update, report again. scale() orders; no randomness but a
-- linear congruential generator, so that every run does the same work.
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, day INTEGER, item TEXT, amount INTEGER);

BEGIN;
WITH RECURSIVE n(i, x) AS (
    SELECT 1, 12345
    UNION ALL SELECT i + 1, (x * 1103515245 + 12345) % 2147483648 FROM n WHERE i < 1 + scale() / 10
)
INSERT INTO customer SELECT i, printf('customer-%05d', x % 99991), 'city-' || (x / 1024 % 40) FROM n;
WITH RECURSIVE n(i, x) AS (
    SELECT 1, 67890
    UNION ALL SELECT i + 1, (x * 1103515245 + 12345) % 2147483648 FROM n WHERE i < scale()
)
INSERT INTO orders
SELECT i, 1 + x / 256 % (1 + scale() / 10), x / 65536 % 365, printf('item %d of kind %x', x / 128 % 500, x / 8 % 64),
       1 + x / 4096 % 1000
FROM n;
COMMIT;

CREATE INDEX orders_by_customer ON orders (customer, day);
CREATE INDEX orders_by_item ON orders (item);

SELECT 'load', (SELECT count(*) FROM customer), count(*), sum(amount) FROM orders;
SELECT 'city', city, count(*), sum(amount), round(avg(amount), 3)
FROM orders JOIN customer ON customer.id = orders.customer
GROUP BY city ORDER BY sum(amount) DESC, city LIMIT 5;
SELECT 'item', item, count(*) FROM orders WHERE item LIKE '%kind 1%' GROUP BY item ORDER BY 3 DESC, 2 LIMIT 3;
SELECT 'running', max(total) FROM (
    SELECT sum(amount) OVER (PARTITION BY customer ORDER BY day, id ROWS 5 PRECEDING) AS total FROM orders);

BEGIN;
UPDATE orders SET amount = amount * 9 / 10 WHERE day BETWEEN 100 AND 200;
DELETE FROM orders WHERE amount < 40 AND customer % 7 = 0;
INSERT INTO orders (customer, day, item, amount)
SELECT customer, day + 365, upper(item), amount + 1 FROM orders WHERE day < 60;
COMMIT;

SELECT 'changed', count(*), sum(amount), min(day), max(day) FROM orders;
SELECT 'gap', max(later.day - earlier.day)
FROM orders AS earlier JOIN orders AS later ON later.customer = earlier.customer AND later.id = (
    SELECT id FROM orders WHERE customer = earlier.customer AND day > earlier.day ORDER BY day, id LIMIT 1)
WHERE earlier.id % 3 = 0;
SELECT 'names', count(DISTINCT substr(name, -3)), max(length(replace(name, '9', 'nine'))) FROM customer;
PRAGMA integrity_check;
